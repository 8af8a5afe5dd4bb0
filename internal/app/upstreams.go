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
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/process/logfile"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tracker"
)

// upstreamSettings are the settings of a configuration for other hosts. While they stay the same, a
// reload keeps the clients with their connections and their state.
type upstreamSettings struct {
	trackers                       tracker.Options
	sources                        origin.SourcesOptions // without the fields that openUpstreams sets
	options                        origin.Options        // without those that openUpstreams and originOf set
	local                          []string              // groups with store paths here
	web                            bool
	webPort                        int
	connectTimeout, networkTimeout time.Duration
}

// settingsOf returns the settings of a configuration for other hosts.
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
	Sources  *origin.Sources // the hosts that files may be fetched from

	settings upstreamSettings
	storages *client.Client // of the storages, or of their web servers
	options  origin.Options
}

// OpenUpstreams makes the clients. It waits for no connection, so a gateway starts while all other
// hosts are down. The client of the trackers loads its lists in the background.
func OpenUpstreams(cfg *config.Config, log *slog.Logger) (*Upstreams, error) {
	settings, err := settingsOf(cfg)
	if err != nil {
		return nil, err
	}
	return openUpstreams(settings, nil, log), nil
}

// Limits of connections to one server. A download may hold a connection until its client has
// received the file. A storage accepts 1,024 connections by default.
const (
	poolMax  = 512
	poolIdle = 32
)

// sameTrackers reports whether both settings need the same client of the trackers.
func (s *upstreamSettings) sameTrackers(other *upstreamSettings) bool {
	return reflect.DeepEqual(s.trackers, other.trackers) && s.connectTimeout == other.connectTimeout &&
		s.networkTimeout == other.networkTimeout
}

// openUpstreams makes the clients. If trackers is nil it makes that client too.
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

// ListenPort returns the port of the first address of listen that has one; 0 = none has.
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

// trackerTimeout bounds the wait for new trackers at a start or reload.
const trackerTimeout = 2 * time.Second

// Await waits until the first load of the lists of the trackers has ended, for at most
// trackerTimeout.
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

// ownAddresses returns the addresses that count as this host (local_ips, or those of its
// interfaces), and its directly connected networks except loopback.
func ownAddresses(cfg *config.Config) (addresses []netip.Addr, networks []netip.Prefix, err error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, nil, errors.Join(i18n.Errorf("cannot list the addresses of this host; set local_ips"), err)
	}
	for _, a := range list {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue // not an IP address
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
