package fleet

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options of a Fleet. Addresses are needed, and one of Advertise, AutoListen and Name; the zero
// value of the others means the defaults.
type Options struct {
	Addresses  []string // host:port of Redis, of the Sentinels, or of some nodes of the Cluster
	Mode       string   // "single", "sentinel" or "cluster"; default "single"
	MasterName string   // for "sentinel", which needs it
	// SentinelAuth uses the same user name and password for the Sentinels.
	SentinelAuth bool
	Username     string
	Password     string
	DB           int
	TLS          *tls.Config // nil = plain TCP
	KeyPrefix    string      // begins every key; default "fdfs:"; the same on all gateways of a fleet

	LockTTL time.Duration // the lease of a killed gateway expires after it; default 10 s

	Advertise string // https URL under which other gateways reach this one; empty = no bytes move between gateways
	// AutoListen is the host:port of the listener for other gateways, in place of Advertise: the
	// URL has the address from which this host reaches Redis, and this port. It follows changes of
	// that address.
	AutoListen string
	Secret     string // of the fleet, MinSecret bytes or more, for peer connections and records; needed with peers
	Name       string // of this gateway in the list of registered gateways; default Advertise

	Timeout time.Duration       // of one request to Redis; default 500 ms
	Log     *slog.Logger        // default: none
	Waited  func(time.Duration) // called with the time of each wait for a lease; default: not called
}

// maxName bounds the name of a gateway in bytes.
const maxName = 255

func (o *Options) setDefaults() {
	o.KeyPrefix = strings.TrimRight(cmp.Or(o.KeyPrefix, "fdfs:"), ":")
	o.LockTTL = cmp.Or(o.LockTTL, 10*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 500*time.Millisecond)
	o.Advertise = strings.TrimRight(o.Advertise, "/")
	if o.AutoListen != "" {
		o.Name = unknownName
	}
	o.Name = cmp.Or(o.Name, o.Advertise)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Waited == nil {
		o.Waited = func(time.Duration) {}
	}
}

// check returns an error for options that are missing, too long or contradict each other. Package
// config does not check these.
func (o *Options) check() error {
	switch {
	case len(o.Addresses) == 0:
		return errors.New("a fleet needs the address of a Redis")
	case strings.ContainsAny(o.KeyPrefix, "{}"):
		return fmt.Errorf("key prefix %q has a brace, which would spread the keys over slots", o.KeyPrefix)
	case o.Name == "" || len(o.Name) > maxName:
		return fmt.Errorf("the name of a gateway has 1 to %d bytes, not %d", maxName, len(o.Name))
	case o.Advertise != "" && o.AutoListen != "":
		return errors.New("a gateway has one URL: Advertise or AutoListen")
	case o.hasPeers() && len(o.Secret) < MinSecret:
		return errShortSecret(o.Secret)
	}
	if o.Advertise == "" {
		return nil
	}
	_, err := parsePeer(o.Advertise)
	return err
}

// hasPeers reports whether gateways request entries from each other.
func (o *Options) hasPeers() bool { return o.Advertise != "" || o.AutoListen != "" }

func errShortSecret(secret string) error {
	return fmt.Errorf("the secret of the fleet has %d bytes, %d are needed", len(secret), MinSecret)
}

// parsePeer checks the URL of a peer: https, a host, optionally a port, and no other part, which
// could change the target of a request.
func parsePeer(text string) (*url.URL, error) {
	if len(text) > maxName {
		return nil, fmt.Errorf("URL of a gateway has %d bytes, %d are allowed", len(text), maxName)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot parse the URL of a gateway: %w", err)
	case u.Scheme != "https", u.Host == "", u.User != nil, u.Path != "", strings.ContainsAny(text, "?#"):
		return nil, fmt.Errorf("URL of a gateway %q is not https://host:port", text)
	}
	return u, nil
}

// clusterReload is the interval at which a client of a Cluster reads the list of masters. With the
// default of go-redis, a gateway missed a failover for a minute.
const clusterReload = 2 * time.Second

// client returns a client of Redis, which connects at its first request. Its timeouts are short,
// since a client of this gateway waits for the file meanwhile. dialed is called with each
// connection, unless it is nil.
func (o *Options) client(dialed func(net.Conn)) redis.UniversalClient {
	u := &redis.UniversalOptions{
		Addrs: o.Addresses, MasterName: o.MasterName, DB: o.DB, IsClusterMode: o.Mode == "cluster",
		Username: o.Username, Password: o.Password, TLSConfig: o.TLS,
		DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout, PoolTimeout: o.Timeout,
		ContextTimeoutEnabled: true,
		DialerRetries:         1, MaxRetries: 1, MinRetryBackoff: 5 * time.Millisecond,
		MaxRetryBackoff: 20 * time.Millisecond,
		PoolSize:        64, MaxIdleConns: 16, DisableIdentity: true,
		Dialer:                   o.dialer(dialed),
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if o.SentinelAuth {
		u.SentinelUsername, u.SentinelPassword = o.Username, o.Password
	}
	switch o.Mode {
	case "sentinel":
		return redis.NewFailoverClient(u.Failover())
	case "cluster":
		cluster := u.Cluster()
		cluster.ClusterStateReloadInterval = clusterReload
		return redis.NewClusterClient(cluster)
	}
	return redis.NewClient(u.Simple())
}
