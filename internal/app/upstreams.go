package app

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/process/logfile"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tracker"
)

// upstreamSettings are the settings of a configuration for other hosts. While they stay the same, a
// reload keeps the clients with their connections and their state.
type upstreamSettings struct {
	trackers                       tracker.Options
	sources                        origin.SourcesOptions // Members apart
	options                        origin.Options        // Protocol and Sources apart
	local                          []string              // groups with store paths here
	web                            bool
	webPort                        int
	connectTimeout, networkTimeout time.Duration
}

// settingsOf reads the settings out of a configuration.
func settingsOf(cfg *config.Config) (upstreamSettings, error) {
	locals, networks, err := ownAddresses(cfg)
	g := &cfg.Gateway
	s := upstreamSettings{
		trackers: trackerOptions(cfg),
		sources: origin.SourcesOptions{LocalIPs: locals, Allow: g.AllowSources, AddressMap: cfg.AddressMap,
			Trackers: len(cfg.TrackerServers) > 0, Ports: map[string]int{}, Port: cfg.StoragePort},
		options: origin.Options{TryReplicas: g.TryReplicas, Redirect: cfg.ResponseMode == "redirect",
			StatTimeout: 2 * (cfg.ConnectTimeout + cfg.NetworkTimeout), Port: ListenPort(cfg)},
		web: g.Upstream == "http", webPort: g.UpstreamHTTPPort, connectTimeout: cfg.ConnectTimeout,
		networkTimeout: cfg.NetworkTimeout,
	}
	if g.AllowLocalNetworks {
		s.sources.Allow = slices.Concat(g.AllowSources, networks)
	}
	s.sources.Web = s.web || s.options.Redirect
	for _, group := range cfg.Groups {
		s.sources.Ports[group.Name] = group.StoragePort
		if len(group.StorePaths) > 0 {
			s.local = append(s.local, group.Name)
		}
	}
	return s, err
}

// Upstreams are the clients of other hosts for one configuration: trackers, and storages or their
// web servers.
type Upstreams struct {
	Trackers *tracker.Client
	Sources  *origin.Sources // the hosts that may be asked

	settings upstreamSettings
	storages *client.Client // of the storages, or of their web servers
	options  origin.Options
}

// OpenUpstreams makes the clients. It connects to nothing yet: a gateway starts when everything
// else is down.
func OpenUpstreams(cfg *config.Config, log *slog.Logger) (*Upstreams, error) {
	settings, err := settingsOf(cfg)
	if err != nil {
		return nil, err
	}
	return openUpstreams(settings, nil, log), nil
}

// Connections to one server: a download holds one for as long as its client takes, and a storage
// takes 1,024 by default.
const (
	poolMax  = 512
	poolIdle = 32
)

// sameTrackers reports whether a client of the trackers serves both settings.
func (s *upstreamSettings) sameTrackers(other *upstreamSettings) bool {
	return reflect.DeepEqual(s.trackers, other.trackers) && s.connectTimeout == other.connectTimeout &&
		s.networkTimeout == other.networkTimeout
}

// openUpstreams makes the clients, that of the trackers where it is nil.
func openUpstreams(s upstreamSettings, trackers *tracker.Client, log *slog.Logger) *Upstreams {
	pool := fdfs.PoolOptions{MaxOpen: poolMax, MaxIdle: poolIdle, ConnectTimeout: s.connectTimeout,
		NetworkTimeout: s.networkTimeout}
	if trackers == nil {
		o := s.trackers
		o.Pool, o.Log = pool, log
		trackers = tracker.New(o)
	}
	sources := s.sources
	u := &Upstreams{settings: s, options: s.options, Trackers: trackers}
	u.options.SyncDelay = func() time.Duration { return u.Trackers.Current().SyncMaxDelay } // trackers may set it
	sources.HasStore = func(group string) bool { return slices.Contains(s.local, group) }
	sources.Members, sources.Renew = u.Trackers.Members(), u.Trackers.Renew
	u.Sources = origin.NewSources(sources)
	u.options.Sources, u.options.Running = u.Sources, &atomic.Int64{}
	if log = logfile.Limit(log); s.web {
		u.storages = origin.NewHTTPClient(origin.HTTPOptions{Port: s.webPort, ConnectTimeout: s.connectTimeout,
			NetworkTimeout: s.networkTimeout, Log: log})
	} else {
		u.storages = client.New(client.Options{Pool: pool, Log: log})
	}
	u.options.Protocol = origin.Storages{Client: u.storages, Web: s.web}
	return u
}

func trackerOptions(cfg *config.Config) tracker.Options {
	o := tracker.Options{UseParameters: cfg.ParametersFromTracker,
		Parameters: tracker.Parameters{SyncMaxDelay: cfg.SyncMaxDelay, UseStorageID: cfg.UseStorageID}}
	for _, t := range cfg.TrackerServers {
		o.Trackers = append(o.Trackers, t.Addresses)
	}
	if cfg.UseStorageID {
		o.StorageIDs = cfg.StorageIDs
	}
	return o
}

// ListenPort is the port of the first address of listen that has one; 0 = none has.
func ListenPort(cfg *config.Config) int {
	for _, address := range cfg.Gateway.Listen {
		if _, port, err := net.SplitHostPort(address); err == nil && !isUnix(address) {
			if n, err := strconv.Atoi(port); err == nil {
				return n
			}
		}
	}
	return 0
}

// trackerTimeout bounds the wait of a start for the trackers.
const trackerTimeout = 2 * time.Second

// Await waits until the trackers have been asked once, for at most trackerTimeout.
func (u *Upstreams) Await() {
	select {
	case <-u.Trackers.Loaded():
	case <-time.After(trackerTimeout):
	}
}

// maxSlot returns the size of the largest trunk slot by the configuration or the trackers,
// whichever is larger.
func (u *Upstreams) maxSlot(cfg *config.Config) int64 {
	return max(cfg.Gateway.SlotMaxSize, u.Trackers.Current().SlotMaxSize)
}

// Close ends the clients. Running downloads end by themselves.
func (u *Upstreams) Close() {
	u.Trackers.Close()
	u.storages.Close()
}

// ownAddresses returns the addresses that count as this host, and its directly connected networks
// except loopback.
func ownAddresses(cfg *config.Config) (addresses []netip.Addr, networks []netip.Prefix, err error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, nil, errors.Join(errors.New("cannot list the addresses of this host; set local_ips"), err)
	}
	for _, a := range list {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue // no address of the Internet
		}
		addresses = append(addresses, prefix.Addr().Unmap())
		if !prefix.Addr().IsLoopback() {
			networks = append(networks, prefix.Masked())
		}
	}
	if len(cfg.Gateway.LocalIPs) > 0 {
		addresses = slices.Clone(cfg.Gateway.LocalIPs)
	}
	return addresses, networks, nil
}
