package fleet

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Health is the result of Examine.
type Health struct {
	Latency    time.Duration // of one request to Redis, on a connection that is open
	ClockAhead time.Duration // of Redis before this host; exact to Latency
	Version    string        // of Redis; empty = its user has no right to read it
	Policy     string        // maxmemory-policy of Redis; empty = its user has no right to read it
	Peers      []PeerHealth  // the other live gateways with peers; none without Self
	Self       string        // URL under which the others reach this gateway; empty = they do not
}

// PeerHealth is the result of Examine for one gateway.
type PeerHealth struct {
	Name    string
	Latency time.Duration // of a new connection, and a request on it
	Err     error         // nil = it is reached and has the secret; ErrSecret, or the failed connection
}

// Examine sends requests to Redis, and connects to every live gateway that is registered there. It
// changes nothing. It needs no Start, and must not run after it.
func (f *Fleet) Examine(ctx context.Context) (h Health, err error) {
	if h.ClockAhead, h.Latency, err = f.clock(ctx); err != nil {
		return h, err
	}
	for _, section := range []string{"server", "memory"} {
		text, _ := f.rdb.Info(ctx, section).Result() // a user with few rights gets an error
		for line := range strings.Lines(text) {
			switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
			case "redis_version":
				h.Version = value
			case "maxmemory_policy":
				h.Policy = value
			}
		}
	}
	if err := f.findAddress(ctx); err != nil {
		return h, fmt.Errorf("cannot find the address towards redis: %w", err)
	}
	self := f.self.Load()
	h.Self = self.advertise
	gateways, _, err := f.registered(ctx)
	if err != nil || h.Self == "" {
		return h, err
	}
	for _, g := range gateways {
		if g.Live && g.Name != self.name && g.isMember {
			h.Peers = append(h.Peers, f.examinePeer(ctx, g))
		}
	}
	return h, nil
}

// clock compares the clock of Redis with that of this host, by the quickest of three requests.
func (f *Fleet) clock(ctx context.Context) (ahead, latency time.Duration, err error) {
	for range 3 {
		var cmd *redis.TimeCmd
		began := time.Now()
		if err := f.ask(ctx, "reach redis", func(ctx context.Context) error {
			cmd = f.rdb.Time(ctx)
			return cmd.Err()
		}); err != nil {
			return 0, 0, err
		}
		if took := time.Since(began); latency == 0 || took < latency {
			ahead, latency = cmd.Val().Sub(began.Add(took/2)), took
		}
	}
	return ahead, latency, nil
}

// examinePeer sends a request to a gateway. In the handshake each side compares the public key of
// the other with its own, which is derived from the secret.
func (f *Fleet) examinePeer(ctx context.Context, g Gateway) PeerHealth {
	p := PeerHealth{Name: g.Name}
	if g.OtherSecret {
		p.Err = ErrSecret
		return p
	}
	to, err := parsePeer(g.Name)
	if err != nil {
		p.Err = err
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, 2*maxSilence(f.o.LockTTL))
	defer cancel()
	p.Latency, p.Err = f.callAlive(ctx, to)
	return p
}
