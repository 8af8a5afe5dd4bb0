package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/process/logfile"
)

// fleetTimeout is how long a start or a reload waits for Redis, to apply purges that were missed.
const fleetTimeout = 2 * time.Second

// FleetOptions are what of a configuration concerns the other gateways; without addresses when it
// names no Redis, or there is no cache to share.
func FleetOptions(cfg *config.Config) (o fleet.Options, err error) {
	r := &cfg.Redis
	if len(r.Addresses) == 0 || !cfg.Cache.Enabled() {
		return o, nil
	}
	o = fleet.Options{
		Addresses: r.Addresses, Mode: r.Mode, MasterName: r.MasterName, SentinelAuth: r.SentinelAuth,
		Username: r.Username, DB: r.DB, KeyPrefix: r.KeyPrefix, LockTTL: cfg.Lock.TTL, LockWait: cfg.Lock.Wait,
		Advertise: cfg.Peer.Advertise, Secret: cfg.Peer.Secret,
	}
	if o.Advertise == "" {
		host, _ := os.Hostname() // without one, the address has to do
		o.Name = host + strings.Join(cfg.Gateway.Listen, ",")
	}
	if o.Password, err = r.ReadPassword(); err != nil {
		return o, fmt.Errorf("%w; see password_file in [redis]", err)
	}
	o.TLS, err = r.TLSConfig()
	return o, err
}

// sameFleet tells whether a Fleet with the one options is one with the others too.
func sameFleet(x, y fleet.Options) bool {
	a, b := x.TLS, y.TLS
	x.TLS, y.TLS = nil, nil
	if a == nil || b == nil {
		return a == b && reflect.DeepEqual(x, y)
	}
	return reflect.DeepEqual(x, y) && a.RootCAs.Equal(b.RootCAs) &&
		slices.EqualFunc(a.Certificates, b.Certificates, func(a, b tls.Certificate) bool {
			return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
		})
}

// logOf names the log of purges of a fleet: the Redis, and the keys there.
func logOf(o *fleet.Options) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%q %q %d %q %q", o.Mode, o.MasterName, o.DB, o.KeyPrefix, o.Addresses) // never fails
	return fmt.Sprintf("%016x", h.Sum64())
}

// sameRedis tells whether two fleets have one log of purges.
func sameRedis(x, y fleet.Options) bool { return logOf(&x) == logOf(&y) }

// openFleet makes the client of the other gateways; nil without addresses.
func openFleet(o fleet.Options) (*fleet.Fleet, error) {
	if len(o.Addresses) == 0 {
		return nil, nil
	}
	return fleet.New(o)
}

// sharesCache tells whether there is a cache, which the configuration keeps. One that it does not
// keep is used until a restart, and needs the purges of its fleet so long.
func (a *App) sharesCache(cfg *config.Config) bool { return a.cache != nil && cfg.Cache.Enabled() }

// fleetFor gives p a fleet, and listeners for it, or those of old where their settings are the
// same. A Redis that does not answer does not replace one that does.
func (a *App) fleetFor(p, old *parts) (err error) {
	if !a.sharesCache(p.cfg) {
		p.fleet, p.peers, p.fleetOptions = old.fleet, old.peers, old.fleetOptions
		return nil
	}
	if p.fleetOptions, err = FleetOptions(p.cfg); err != nil {
		return err
	}
	sockets := p.boundFor(forPeers)
	if sameFleet(p.fleetOptions, old.fleetOptions) && slices.Equal(sockets, old.boundFor(forPeers)) {
		p.fleet, p.peers = old.fleet, old.peers
		return nil
	}
	o := p.fleetOptions
	o.Log, o.Waited, o.Counters = logfile.Limit(a.log), a.waited, &a.fleetCounters
	if p.fleet, err = openFleet(o); err != nil || p.fleet == nil {
		return err
	}
	for _, s := range sockets {
		ln, err := s.Dup()
		if err != nil {
			return err
		}
		p.peers = append(p.peers, ln)
	}
	if old.fleet == nil || !old.fleet.Stats().Up {
		return nil
	}
	if err = p.fleet.Reach(context.Background()); err != nil {
		err = fmt.Errorf("the gateway stays with its redis, which serves: %w; %s", err, fleet.Advice(err))
	}
	return err
}

// fleet is that of the configuration in use; nil = there is none.
func (a *App) fleet() *fleet.Fleet { return a.parts.Load().fleet }

// currentFleet is what the cache asks of the other gateways. A reload replaces it with the parts.
type currentFleet struct{ *App }

var _ cache.Fleet = currentFleet{}

func (c currentFleet) now() cache.Fleet {
	if f := c.fleet(); f != nil {
		return f
	}
	return cache.Standalone{}
}

// Rank implements cache.Fleet.
func (c currentFleet) Rank(key string, n int) []string { return c.now().Rank(key, n) }

// Open implements cache.Fleet.
func (c currentFleet) Open(ctx context.Context, peer string, r cache.PeerRequest) (cache.Meta, io.ReadCloser, error) {
	return c.now().Open(ctx, peer, r)
}

// AcquireLease implements cache.Fleet.
func (c currentFleet) AcquireLease(ctx context.Context, key string) (context.Context, func(), error) {
	return c.now().AcquireLease(ctx, key)
}

// joinFleet makes this gateway one of the fleet of p: purges of the others arrive from now on, and
// they are answered. load tells the last purge that was applied; nil = it is not known. moved: it
// may be one of another log.
func (a *App) joinFleet(p *parts, load func() (int64, error), moved bool) {
	if p.fleet == nil {
		a.purgesKnown()
		return
	}
	l := fleet.Local{Purge: func(m cache.Match) { a.forget(m) }, Load: load, Moved: moved, Synced: a.purgesKnown}
	if a.applied.folder != "" {
		l.Store = a.applied.store
	}
	a.applied.follow(logOf(&p.fleetOptions))
	if err := p.fleet.Start(l); err != nil {
		panic("BUG: " + err.Error())
	}
	for _, ln := range p.peers {
		a.log.Info("serving other gateways", "address", ln.Addr().String(), "advertise", p.cfg.Peer.Advertise)
		a.serve(func() error { return p.fleet.ServePeers(ln, a.cache.PeerOpen) })
	}
	select {
	case <-p.fleet.Synced():
	case <-time.After(fleetTimeout):
		a.log.Warn("serving begins without redis: this gateway fetches for itself, " +
			"and what is on disk is used when the log of purges can be read")
	}
}

// changeFleet moves a gateway that serves from the fleet of old to that of p. What it has in its
// caches stays when it has applied every purge in the log of the one, and in that of the other.
func (a *App) changeFleet(old, p *parts) {
	a.endLeaving()
	fence, moved := int64(0), true
	if old.fleet != nil {
		a.warnOfApplied(a.applied.pause())
		applied, ok := old.fleet.Retire()
		switch {
		case ok:
			fence = applied
		case sameRedis(old.fleetOptions, p.fleetOptions): // the new one reads on in its log
			fence, moved = old.fleet.Stats().Applied, false
		default:
			a.forgetAll()
		}
		old.fleet.StopAccepting() // the new one does, or a later one where this one has no listener
	}
	a.joinFleet(p, func() (int64, error) { return fence, nil }, moved)
}

// forgetAll drops what is cached when a Redis is left whose purges cannot be read.
func (a *App) forgetAll() {
	a.log.Warn("everything is dropped from the cache: the redis that is left does not tell what was purged")
	a.forget(tier.MatchAll)
}

func (a *App) warnOfApplied(err error) {
	if err != nil {
		a.log.Warn("cannot note beside the disk cache which purges it has applied", "err", err)
	}
}

// leavingFleet is one that a reload has replaced.
type leavingFleet struct {
	hurry context.CancelFunc
	ended chan struct{} // closed at its end
}

// leaveFleet ends the fleet of old within shutdown_timeout. It stays that long in another Redis
// than that of p, so that it applies purges of gateways that have yet to reload.
func (a *App) leaveFleet(old, p *parts) {
	ctx, hurry := context.WithTimeout(a.upgrade.life, p.cfg.Gateway.ShutdownTimeout)
	l, same := &leavingFleet{hurry, make(chan struct{})}, sameRedis(old.fleetOptions, p.fleetOptions)
	a.leaving = l
	a.running.Go(func() {
		defer close(l.ended)
		defer hurry()
		if err := old.fleet.Leave(ctx, !same); err != nil && !same { // the log of the same one is still read
			a.forgetAll()
		}
		_ = old.fleet.Close() // there is nothing to be done
		a.warnOfApplied(a.applied.resume(p.fleet))
		a.log.Info("the fleet before the reload was left", "redis", strings.Join(old.fleetOptions.Addresses, ", "))
	})
}

// endLeaving ends the fleet that is being left at once. loading is held.
func (a *App) endLeaving() {
	if l := a.leaving; l != nil {
		l.hurry()
		<-l.ended
		a.leaving = nil
	}
}

// closeAdded closes what p has and old does not, for a configuration that is refused.
func (p *parts) closeAdded(old *parts) error {
	var errs []error
	if p.store != nil && p.store != old.store {
		errs = append(errs, p.store.Close())
	}
	if p.fleet != nil && p.fleet != old.fleet {
		errs = append(errs, p.fleet.Close())
		for _, ln := range p.peers {
			errs = append(errs, ln.Close())
		}
	}
	for _, ln := range without(p.bound, old.bound) {
		errs = append(errs, ln.Close())
	}
	return errors.Join(errs...)
}
