package config

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// resolveTime bounds the resolution of all names together.
const resolveTime = 5 * time.Second

// CheckTrackers resolves the names of the trackers, and gives a warning for each that does not
// resolve. It asks the system's resolver, for 5 s at most, so it is for commands and not for the
// start of a gateway.
func (c *Config) CheckTrackers(ctx context.Context) []Problem {
	const key = "tracker_server"
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	k := &checker{report: &report{}, c: c}
	var running sync.WaitGroup
	var mu sync.Mutex // guards the report of k
	for _, tracker := range c.TrackerServers {
		for _, address := range tracker.Addresses {
			host, _, err := net.SplitHostPort(address)
			if _, notIP := netip.ParseAddr(host); err != nil || notIP == nil {
				continue
			}
			running.Go(func() {
				if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
					mu.Lock()
					defer mu.Unlock()
					k.warnf(c.at(key), key, "correct the name, or make it known to DNS or /etc/hosts of this host",
						"the tracker's name %s does not resolve: %v", shown(host), err)
				}
			})
		}
	}
	running.Wait()
	return k.sorted(c.Files)
}
