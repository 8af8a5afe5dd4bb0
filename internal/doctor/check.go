package doctor

import (
	"context"
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

// Check reads a configuration and looks at the host. The configuration is nil when an error forbids
// its use.
func Check(ctx context.Context, file string) (*config.Config, []config.Problem) {
	cfg, problems := config.Load(file)
	if cfg == nil {
		return nil, problems
	}
	return cfg, slices.Concat(problems, cfg.Check(time.Now()), trackerNames(ctx, cfg), app.HostProblems(cfg))
}

// Advertised is the URL that advertise = auto means on this host, by its route to Redis. Nothing is
// sent there. It is empty where auto is not set, or the problem says why it is not known.
func Advertised(ctx context.Context, cfg *config.Config) (self string, problems []config.Problem) {
	if cfg.Peer.Advertise != config.AdvertiseAuto || len(cfg.Redis.Addresses) == 0 {
		return "", nil
	}
	var last error
	for _, address := range cfg.Redis.Addresses {
		conn, err := (&net.Dialer{Timeout: resolveTime / 2}).DialContext(ctx, "udp", address)
		if err != nil {
			last = err
			continue
		}
		local := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		_ = conn.Close() // nothing was sent
		return fleet.AutoURL(local, cfg.Peer.Listen), nil
	}
	return "", []config.Problem{cfg.Warning("peer.advertise",
		i18n.Sprintf("advertise = auto: this host has no way to Redis, and serves alone until it has one: %v", last),
		"correct addresses in [redis], or the network of this host")}
}

// resolveTime bounds the resolution of all names together.
const resolveTime = 5 * time.Second

// trackerNames gives a warning for each name of a tracker that does not resolve. It asks the
// resolver of the system.
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
