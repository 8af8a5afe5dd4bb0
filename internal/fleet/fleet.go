package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/lua"

	"github.com/redis/go-redis/v9"
)

// Fleet is this gateway's view of all gateways that share a Redis. It is safe for use by many
// goroutines; a process needs one.
type Fleet struct {
	o       Options
	keys    keys
	rdb     redis.UniversalClient
	locks   *cachelock.Client // leases
	waiting *cachelock.Client // looks whether a lease is free by taking it: under a name that is not asked for bytes
	folders *cachelock.Folders
	breaker *breaker
	peers   *peers
	peerTLS *tls.Config // nil = this gateway has no peers
	records records
	members *memberList
	leases  leases
	cursor  *purgeCursor
	purges  purgeLimits

	leadTimeout time.Duration // for taking a lease

	life    context.Context // ends with Close
	end     context.CancelFunc
	beating context.Context // of the background work; ends with Close or HandOver
	endBeat context.CancelFunc
	running sync.WaitGroup // the background loop and the subscription
	news    chan struct{}  // holds one value: something was purged
	synced  chan struct{}  // closed when the log of purges was applied for the first time

	handedOver atomic.Bool // another process has the name of this one

	mu           sync.Mutex // guards what follows
	local        Local
	started      bool
	closed       bool
	peersStopped bool         // StopPeers was called
	peerServer   *http.Server // nil until ServePeers
	last         int64        // fence of the last purge that was applied; -1 = not known
	seen         int64        // fence of the last purge that was read; it is being applied while last is less
}

var _ cache.Fleet = (*Fleet)(nil)

// The scripts.
var (
	purgeScript = redis.NewScript(lua.FleetPurge)
	syncScript  = redis.NewScript(lua.FleetSync)
)

// New returns a Fleet, which connects to nothing yet. The caller closes it.
func New(o Options) (*Fleet, error) {
	o.setDefaults()
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("cannot join the fleet: %w", err)
	}
	var config *tls.Config
	if o.Advertise != "" {
		var err error
		if config, err = peerTLS(o.Secret); err != nil {
			return nil, err
		}
	}
	records, err := newRecords(&o)
	if err != nil {
		return nil, err
	}
	f := &Fleet{
		o: o, keys: keys(o.KeyPrefix + ":{0}:"), rdb: o.client(),
		breaker: newBreaker(o.Log.With("redis", strings.Join(o.Addresses, ", "))),
		purges:  defaultPurgeLimits, leadTimeout: defaultLeadTimeout,
		news: make(chan struct{}, 1), synced: make(chan struct{}), cursor: newPurgeCursor(), last: -1,
	}
	f.records, f.members = records, newMemberList(o.Advertise)
	holder, waiting := records.make(o.Advertise), records.make(waitingName)
	if holder == "" {
		holder, waiting = o.Name, waitingName
	}
	f.locks = cachelock.New(f.rdb, cachelock.Options{Prefix: o.KeyPrefix, Holder: holder, TTL: o.LockTTL, Shards: 1})
	f.waiting = cachelock.New(f.rdb, cachelock.Options{Prefix: o.KeyPrefix, Holder: waiting, TTL: o.LockTTL, Shards: 1})
	f.life, f.end = context.WithCancel(context.Background())
	f.beating, f.endBeat = context.WithCancel(f.life)
	f.peers, f.peerTLS = newPeers(&f.o, &f.leases, config), config
	if f.folders, err = f.locks.Folders("files"); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock folders: %w", err), f.Close())
	}
	return f, nil
}

// Close takes this gateway out of the list of those that are registered, ends what runs in the
// background and waits for it. Leases that are still held expire.
func (f *Fleet) Close() error {
	f.mu.Lock()
	was := f.closed
	f.closed = true
	registered, server := f.started, f.peerServer
	f.mu.Unlock()
	if was {
		return nil
	}
	f.end()
	f.running.Wait()
	if registered {
		f.unregister()
	}
	f.peers.close()
	if server != nil {
		_ = server.Close() // answers that are left are cut: peers see that
	}
	return errors.Join(f.locks.Close(), f.waiting.Close(), f.rdb.Close())
}

// HandOver leaves the name of this gateway, and the log of purges, to another process that has the
// same name from now on. This one neither renews its record nor takes it out at the end; what is
// purged reaches it by other ways. Peers are told to connect anew; running answers to them go on
// until StopPeers.
func (f *Fleet) HandOver() {
	f.handedOver.Store(true)
	f.endBeat()
	f.running.Wait()
	f.mu.Lock()
	f.started = false
	f.peersStopped = true
	server := f.peerServer
	f.mu.Unlock()
	if server != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Shutdown(ended) // it closes the listener, and does not wait
	}
}

// unregister is for a gateway that leaves in good order, so that no purge waits for it.
func (f *Fleet) unregister() {
	if f.breaker.retryAfter() > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.o.Timeout)
	defer cancel()
	_, _ = f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // else it is forgotten after a while
		p.ZRem(ctx, f.keys.gateways(), f.o.Name)
		p.HDel(ctx, f.keys.obeyed(), f.o.Name)
		p.HDel(ctx, f.keys.members(), f.o.Name)
		return nil
	})
}

// ask does one request to Redis within the time that there is for it, unless the breaker is open.
func (f *Fleet) ask(ctx context.Context, what string, request func(context.Context) error) error {
	if _, err := f.breaker.allow(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	return f.judge(ctx, what, request(limited))
}

// judge tells the breaker how a request has ended, and gives the error its kind. One that was
// cancelled by its caller says nothing about Redis.
func (f *Fleet) judge(ctx context.Context, what string, err error) error {
	var held *cachelock.HeldError
	switch {
	case err == nil, errors.Is(err, redis.Nil), errors.Is(err, cachelock.ErrLost), errors.As(err, &held):
		f.breaker.note(nil)
		return err
	case errors.Is(err, cachelock.ErrInvalid), errors.Is(err, cachelock.ErrNotHeld):
		return fmt.Errorf("cannot %s: %w", what, err)
	case ended(ctx) != nil:
		return fmt.Errorf("cannot %s: %w", what, ended(ctx))
	case errors.Is(err, cachelock.ErrClosed), f.life.Err() != nil:
		return fmt.Errorf("cannot %s: %w: this gateway stops", what, cache.ErrFleetDown)
	}
	f.breaker.note(err)
	return fmt.Errorf("cannot %s: %w: %w", what, cache.ErrFleetDown, err)
}

// ended is why a caller's context has ended; nil = it has not. A connection may notice the
// context's deadline a moment before the context does: that is no fault of Redis either.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// keys makes the names of keys; it is what they begin with.
type keys string

func (k keys) fence() string            { return string(k) + "fence" }
func (k keys) lock(key string) string   { return string(k) + "lock:" + key } // as package cachelock names it
func (k keys) purges() string           { return string(k) + "purges" }
func (k keys) base() string             { return string(k) + "purges:base" }
func (k keys) gateways() string         { return string(k) + "gateways" }
func (k keys) obeyed() string           { return string(k) + "obeyed" }
func (k keys) members() string          { return string(k) + "members" }
func (k keys) about(name string) string { return string(k) + "about:" + name }

// channel tells of purges.
func (k keys) channel() string { return string(k) + "purged" }

func millis(d time.Duration) int64 { return max(d.Milliseconds(), 1) }
