package app

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/process/logfile"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tracker"
)

// remoteSettings are what of a configuration concerns other hosts. While they stay the same, a
// reload keeps the clients with their connections and what they have learned.
type remoteSettings struct {
	trackers                       tracker.Options
	sources                        origin.SourcesOptions // Members apart
	options                        origin.Options        // Protocol and Sources apart
	local                          []string              // groups with store paths here
	web                            bool
	webPort                        int
	connectTimeout, networkTimeout time.Duration
}

// settingsOf takes them out of a configuration.
func settingsOf(cfg *config.Config) (remoteSettings, error) {
	locals, networks, err := ownAddresses(cfg)
	g := &cfg.Gateway
	s := remoteSettings{
		trackers: trackerOptions(cfg),
		sources: origin.SourcesOptions{LocalIPs: locals, Allow: g.AllowSources, AddressMap: cfg.AddressMap,
			Trackers: len(cfg.TrackerServers) > 0, Ports: map[string]int{}, Port: cfg.StoragePort},
		options: origin.Options{TryReplicas: g.TryReplicas, Redirect: cfg.ResponseMode == "redirect",
			StatTimeout: 2 * (cfg.ConnectTimeout + cfg.NetworkTimeout), Port: listenPort(g.Listen)},
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

// remote are the clients of other hosts for one configuration.
type remote struct {
	settings remoteSettings
	trackers *tracker.Client
	storages *client.Client // of the storages, or of their web servers
	options  origin.Options
	running  *atomic.Int64 // requests that use the clients
}

// Connections to one server: a download holds one for as long as its client takes, and a storage
// takes 1,024 by default.
const (
	poolMax  = 512
	poolIdle = 32
)

// openRemote makes the clients. It connects to nothing yet: a gateway starts when everything else
// is down.
func openRemote(s remoteSettings, log *slog.Logger) *remote {
	pool := fdfs.PoolOptions{MaxOpen: poolMax, MaxIdle: poolIdle, ConnectTimeout: s.connectTimeout,
		NetworkTimeout: s.networkTimeout}
	asked, sources := s.trackers, s.sources
	asked.Pool, asked.Log = pool, log
	r := &remote{settings: s, options: s.options, running: &atomic.Int64{}, trackers: tracker.New(asked)}
	r.options.SyncDelay = r.syncDelay
	sources.HasStore = func(group string) bool { return slices.Contains(s.local, group) }
	sources.Members, sources.Renew, r.options.Running = r.trackers.Members(), r.trackers.Renew, r.running
	r.options.Sources = origin.NewSources(sources)
	if log = logfile.Limit(log); s.web {
		r.storages = origin.NewHTTPClient(origin.HTTPOptions{Port: s.webPort, ConnectTimeout: s.connectTimeout,
			NetworkTimeout: s.networkTimeout, Log: log})
		r.options.Protocol = origin.HTTP{Client: r.storages}
	} else {
		r.storages = client.New(client.Options{Pool: pool, Log: log})
		r.options.Protocol = origin.FastDFS{Client: r.storages}
	}
	return r
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

// listenPort is the port of the first address that has one.
func listenPort(listen []string) int {
	for _, address := range listen {
		if _, port, err := net.SplitHostPort(address); err == nil && !strings.HasPrefix(address, "unix:") {
			if n, err := strconv.Atoi(port); err == nil {
				return n
			}
		}
	}
	return 0
}

// trackerTimeout is how long a start waits for the trackers.
const trackerTimeout = 2 * time.Second

// await waits until the trackers have been asked once, but not for long: what they know comes later
// then.
func (r *remote) await() {
	select {
	case <-r.trackers.Loaded():
	case <-time.After(trackerTimeout):
	}
}

// syncDelay is how long a file may be on its way: the trackers may say so.
func (r *remote) syncDelay() time.Duration { return r.trackers.Current().SyncMaxDelay }

// maxSlot is the size of the largest trunk slot: the trackers may know of larger ones than the
// configuration.
func maxSlot(cfg *config.Config, other *remote) int64 {
	return max(cfg.Gateway.SlotMaxSize, other.trackers.Current().SlotMaxSize)
}

// close ends the clients. Running downloads end by themselves.
func (r *remote) close() {
	r.trackers.Close()
	r.storages.Close()
}

// ownAddresses are the addresses that count as this host, and the networks that it is directly in,
// loopback apart.
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
