package fleet

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/logtest"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

const (
	redisUser     = "gateway"
	redisPassword = "a-long-random-secret"
)

// redisRights are the rights of the user of the gateways in docs/hardening.md.
var redisRights = []any{"+@read", "+@write", "+@scripting", "+@pubsub", "+@connection", "+@transaction", "-@dangerous",
	"-@admin", "+time", "+cluster|slots", "+cluster|shards", "+readonly"}

// tlsOf returns the configuration of a client that trusts one authority and has a certificate of
// another one; nil = none.
func tlsOf(t *testing.T, trusts, of *redistest.Authority) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(trusts.File)
	require.NoError(t, err)
	o := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	require.True(t, o.RootCAs.AppendCertsFromPEM(text))
	if of != nil {
		pair, err := tls.LoadX509KeyPair(of.Issue())
		require.NoError(t, err)
		o.Certificates = []tls.Certificate{pair}
	}
	return o
}

// secured returns the options for a Redis with TLS and a user for the gateways.
func secured(t *testing.T, a *redistest.Authority, address string) Options {
	t.Helper()
	o := fleetOf(address)
	o.Username, o.Password, o.TLS = redisUser, redisPassword, tlsOf(t, a, a)
	return o
}

// TestRedisByTLS: leases, locks and purges work by TLS with a client certificate, as a user with no
// more rights than redisRights.
func TestRedisByTLS(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	for _, c := range []struct {
		mode  string
		start func(t *testing.T, o *Options) (server, asked *redistest.TLS)
	}{
		{"single", func(*testing.T, *Options) (server, asked *redistest.TLS) {
			s := a.StartTLS()
			return s, s
		}},
		{"sentinel", func(_ *testing.T, o *Options) (server, asked *redistest.TLS) {
			s := a.StartTLS()
			sentinel := a.StartTLSSentinel(s, "default", "nothing")
			o.MasterName, o.SentinelAuth = redistest.MasterName, true
			sentinel.Protect(redisUser, redisPassword, "", "+sentinel", "+subscribe", "+psubscribe")
			return s, sentinel
		}},
		{"cluster", func(*testing.T, *Options) (server, asked *redistest.TLS) {
			s := a.StartTLSCluster()
			return s, s
		}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			o := secured(t, a, "")
			server, asked := c.start(t, &o)
			o.Addresses, o.Mode = []string{asked.TLSAddr()}, c.mode
			server.Protect(redisUser, redisPassword, o.KeyPrefix, redisRights...)
			first, second := member(t, o, 1), member(t, o, 2)
			works(t, first, second)
			o.Advertise, o.AutoListen = "", ":8887"
			start(t, gatewayOf(t, o), (&memory{}).local())
			require.Contains(t, names(t, first), "https://127.0.0.1:8887")
		})
	}
}

// works requires that leases, waits and purges work.
func works(t *testing.T, first, second *Fleet) {
	t.Helper()
	know(first, second)
	lease := lead(t, first, "key")
	heldBy(t, leaseRejected(t, second, "key"), "https://10.0.0.1:8887")
	lease.release()
	require.NoError(t, second.waitForLease(t.Context(), LockInfo{Key: "key"}))
	var caches [2]memory
	for i, f := range []*Fleet{first, second} {
		require.NoError(t, f.Start(caches[i].local()))
		ready(t, f)
	}
	gateways, missing, err := first.Purge(t.Context(), tier.MatchAll)
	require.NoError(t, err)
	require.Equal(t, 2, gateways)
	require.Empty(t, missing)
	require.True(t, first.Stats().Up)
}

// TestRedisRejects: an error between the gateway and Redis is logged once, with its remedy.
func TestRedisRejects(t *testing.T) {
	a, other := redistest.NewAuthority(t), redistest.NewAuthority(t)
	server := a.StartTLS()
	server.Protect(redisUser, redisPassword, "", redisRights...)
	for _, c := range []struct {
		name, said, advice string
		change             func(o *Options)
	}{
		{"another authority", "signed by unknown authority", "set ca_file", func(o *Options) {
			o.TLS = tlsOf(t, other, a)
		}},
		{"name that is not in the certificate", "not valid for any names", "name redis-server", func(o *Options) {
			o.Addresses[0] = "localhost" + o.Addresses[0][len("127.0.0.1"):]
		}},
		{"no client certificate", "certificate required", "set cert_file and key_file", func(o *Options) {
			o.TLS = tlsOf(t, a, nil)
		}},
		{"client certificate of another authority", "unknown certificate authority", "set cert_file and key_file",
			func(o *Options) { o.TLS = tlsOf(t, a, other) }},
		{"TLS to the plain port", "cannot read the log of purges", "check addresses and tls", func(o *Options) {
			o.Addresses[0], o.Timeout = server.Addr(), 200*time.Millisecond
		}},
		{"no TLS to the port of TLS", "EOF", "check addresses and tls", func(o *Options) { o.TLS = nil }},
		{"wrong password", "WRONGPASS", "password_file", func(o *Options) { o.Password = "a-guessed-password" }},
		{"no password", "NOPERM", "let the user of [redis]", func(o *Options) { o.Username, o.Password = "", "" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := secured(t, a, server.TLSAddr())
			c.change(&o)
			var log logtest.Buffer
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			f := member(t, o, 1)
			require.NoError(t, f.Start((&memory{}).local()))
			eventually.True(t, func() bool { return log.Count("Redis unavailable") == 1 }, "the fault is in the log")
			require.Equal(t, 1, log.Count(c.said), "%s", log.String())
			require.Equal(t, 1, log.Count(c.advice), "%s", log.String())
			require.Zero(t, log.Count("a-guessed-password"))
			require.False(t, f.Stats().Up)
		})
	}
}
