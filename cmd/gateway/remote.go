package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/storage"
	"fastdfs-gateway/tracker"
)

// remote are the clients of other hosts for one configuration.
type remote struct {
	trackers *tracker.Client
	storages *storage.Client
	web      *gateway.HTTPOrigin // nil unless upstream = http
	options  gateway.RemoteOptions
}

// openRemote makes the clients. It connects to nobody yet: a gateway starts when everything else is down.
func openRemote(cfg *config.Config, log *slog.Logger) (*remote, error) {
	locals, networks, err := ownAddresses(cfg)
	if err != nil {
		return nil, err
	}
	pool := fdfs.PoolOptions{ConnectTimeout: cfg.ConnectTimeout, NetworkTimeout: cfg.NetworkTimeout}
	r := &remote{trackers: tracker.New(trackerOptions(cfg, pool, log)), storages: storage.NewClient(storage.ClientOptions{Pool: pool, Log: log})}
	g := &cfg.Gateway
	sources := gateway.SourcesOptions{LocalIPs: locals, Networks: networks, Allow: g.AllowSources, AddressMap: cfg.AddressMap,
		Members: r.trackers.Members(), Trackers: len(cfg.TrackerServers) > 0, Ports: map[string]int{}, Port: cfg.StoragePort}
	for _, group := range cfg.Groups {
		sources.Ports[group.Name] = group.StoragePort
	}
	if len(cfg.TrackerServers) == 0 && !cfg.UseStorageID && len(g.AllowSources) == 0 {
		log.Warn("neither tracker_server nor storage ids nor allow_sources say which hosts are storages: every address in the networks of this host counts as one",
			"networks", fmt.Sprint(networks))
	}
	r.options = gateway.RemoteOptions{
		Origin: gateway.StorageOrigin{Client: r.storages}, Sources: gateway.NewSources(sources),
		TryReplicas: g.TryReplicas, Redirect: cfg.ResponseMode == "redirect", RedirectScheme: g.RedirectScheme, RedirectPort: g.RedirectPort,
		StatTimeout: 2 * (cfg.ConnectTimeout + cfg.NetworkTimeout), Port: listenPort(g.Listen),
	}
	if g.Upstream == "http" {
		r.web = gateway.NewHTTPOrigin(gateway.HTTPOriginOptions{Port: g.UpstreamHTTPPort, ConnectTimeout: cfg.ConnectTimeout, NetworkTimeout: cfg.NetworkTimeout})
		r.options.Origin = r.web
	}
	return r, nil
}

func trackerOptions(cfg *config.Config, pool fdfs.PoolOptions, log *slog.Logger) tracker.Options {
	o := tracker.Options{Pool: pool, UseParameters: cfg.ParametersFromTracker, Log: log,
		Parameters: tracker.Parameters{SyncMaxDelay: cfg.SyncMaxDelay, UseStorageID: cfg.UseStorageID}}
	for _, t := range cfg.TrackerServers {
		o.Trackers = append(o.Trackers, t.Addresses)
	}
	if cfg.UseStorageID {
		for _, id := range cfg.StorageIDs {
			o.StorageIDs = append(o.StorageIDs, fdfs.StorageID{ID: id.ID, Group: id.Group, Hosts: id.Hosts, Port: id.Port})
		}
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

// trackerPatience is how long a start waits for the trackers.
const trackerPatience = 2 * time.Second

// await waits until the trackers have been asked once, but not for long: what they know comes later then.
func (r *remote) await() {
	select {
	case <-r.trackers.Loaded():
	case <-time.After(trackerPatience):
	}
}

// syncDelay is how long a file may be on its way: the trackers may say so.
func (r *remote) syncDelay() time.Duration { return r.trackers.Current().SyncMaxDelay }

// close ends the clients. Running downloads end by themselves.
func (r *remote) close() {
	r.trackers.Close()
	r.storages.Close()
	if r.web != nil {
		r.web.Close()
	}
}

// ownAddresses are the addresses that count as this host, and the networks that it is directly in, loopback apart.
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
