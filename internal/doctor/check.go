package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/i18n"
)

// Check loads a configuration, and returns its problems and those of the host. The configuration is
// nil if an error forbids its use.
func Check(ctx context.Context, file string) (*config.Config, []config.Problem) {
	cfg, problems := config.CheckFile(file, time.Now())
	if cfg == nil {
		return nil, problems
	}
	return cfg, slices.Concat(problems, trackerNames(ctx, cfg), capacity(ctx, cfg), app.HostProblems(cfg))
}

// Advertised returns the URL that advertise = auto means on this host, by its routes to Redis. It
// sends nothing to Redis. The URL is empty if auto is not set, or if a problem has the reason why
// the URL is unknown.
func Advertised(ctx context.Context, cfg *config.Config) (self string, problems []config.Problem) {
	if cfg.Peer.Advertise != config.AdvertiseAuto || len(cfg.Redis.Addresses) == 0 {
		return "", nil
	}
	const key = "peer.advertise"
	address, err := addressTowards(ctx, cfg.Redis.Addresses)
	if err != nil {
		return "", []config.Problem{cfg.Warning(key,
			i18n.Sprintf("advertise = auto: this host has no way to Redis, and serves alone until it has one: %v", err),
			"correct addresses in [redis], or the network of this host")}
	}
	switch {
	case fleet.IsUnreachable(address, cfg.Peer.Listen):
		problems = []config.Problem{cfg.Warning(key,
			i18n.Plain("advertise = auto is a loopback address: gateways on other hosts would ask themselves"),
			"write the address of this host, unless all gateways are on it")}
	case fleet.IsUnserved(address, cfg.Peer.Listen):
		problems = []config.Problem{cfg.Warning(key,
			i18n.Plain("advertise = auto is an address at which [peer] listen takes no connections"),
			"write the port alone in listen, such as :8887, or an URL that leads to it in advertise")}
	}
	return fleet.AutoURL(address, cfg.Peer.Listen), problems
}

// addressTowards returns the address from which this host reaches the first of the servers, or the
// first one that it does not reach from a loopback address.
func addressTowards(ctx context.Context, servers []string) (found netip.Addr, err error) {
	last := errors.New("only by a link-local address")
	for _, server := range servers {
		conn, err := (&net.Dialer{Timeout: resolveTime / 2}).DialContext(ctx, "udp", server)
		if err != nil {
			last = err
			continue
		}
		local := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		_ = conn.Close() // nothing was sent
		if local.Zone() == "" && (!found.IsValid() || found.IsLoopback() && !local.IsLoopback()) {
			found = local
		}
	}
	if !found.IsValid() {
		return found, last
	}
	return found, nil
}

// resolveTime bounds the resolution of all names together.
const resolveTime = 5 * time.Second

// trackerNames returns a warning for each name of a tracker that the resolver of the system does
// not resolve.
func trackerNames(ctx context.Context, cfg *config.Config) (problems []config.Problem) {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	var running sync.WaitGroup
	var mu sync.Mutex // guards problems
	for _, tracker := range cfg.TrackerServers {
		for _, address := range tracker.Addresses {
			host, _, err := net.SplitHostPort(address)
			if _, notIP := netip.ParseAddr(host); err != nil || notIP == nil {
				continue
			}
			running.Go(func() {
				if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
					mu.Lock()
					defer mu.Unlock()
					problems = append(problems, cfg.Warning("tracker_server",
						i18n.Sprintf("the tracker's name %.80q does not resolve: %v", host, err),
						"correct the name, or make it known to DNS or /etc/hosts of this host"))
				}
			})
		}
	}
	running.Wait()
	return problems
}
