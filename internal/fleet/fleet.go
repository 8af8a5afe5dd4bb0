package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/process/logfile"
	"fastdfs-gateway/lua"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"golang.org/x/sync/semaphore"
)

// The client of Redis would log each failure; a Fleet logs the first one and the end.
func init() { logging.Disable() }

// Fleet is this gateway's view of all gateways that share a Redis. It is safe for use by many
// goroutines; a process needs one.
type Fleet struct {
	o         Options
	log       string // result of Log
	rdb       redis.UniversalClient
	locks     *cachelock.Client // leases
	folders   *cachelock.Folders
	breaker   *breaker
	self      atomic.Pointer[identity]
	address   ownAddress // for Options.AutoListen
	members   atomic.Pointer[memberList]
	transport *http.Transport     // to other gateways
	lives     lives               // of other gateways
	server    *http.Server        // of other gateways; Close stops it
	handle    sync.Once           // sets the handler of server
	admission admission           // of connections to server
	responses *semaphore.Weighted // one unit per response to another gateway; StopPeers takes all
	drained   atomic.Bool         // StopPeers has taken all
	warn      *logfile.Warner
	stats     counters
	purges    purgeLimits

	leadTimeout time.Duration // for taking a lease

	life    context.Context // ends with Close
	end     context.CancelFunc
	beating context.Context // of the background work; ends with Close or HandOver
	endBeat context.CancelFunc
	running sync.WaitGroup // the background loop and the subscription

	loopEnded chan struct{} // closed at the end of loop

	news    chan struct{} // holds one value after wake
	heard   chan struct{} // holds one value after a message from Redis
	synced  chan struct{} // closed when the log of purges was applied for the first time
	logRead atomic.Pointer[logRead]
	applied atomic.Int64 // fence of the last purge that was applied; -1 = not known
	local   atomic.Pointer[Local]
	seen    atomic.Int64 // fence of the last purge that was read; it is being applied while applied is less

	handedOver atomic.Bool // another process has the name of this one
	lastSeen   string      // time in Redis of the last exchange; exchange uses it, and Leave after the end of loop
	twin       twin        // guarded as lastSeen is

	mu      sync.Mutex // guards the field below, and changes of self
	started bool
}

var _ cache.Fleet = (*Fleet)(nil)

// The scripts that Redis runs.
var (
	purgeScript    = redis.NewScript(lua.FleetPurge)
	syncScript     = redis.NewScript(lua.FleetSync)
	gatewaysScript = redis.NewScript(lua.FleetGateways)
	leaveScript    = redis.NewScript(lua.FleetLeave)
)

// New returns a Fleet, which connects to nothing yet. The caller closes it.
func New(o Options) (*Fleet, error) {
	log := logOf(&o)
	o.setDefaults()
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("cannot join the fleet: %w", err)
	}
	f := &Fleet{
		o: o, log: log, warn: logfile.NewWarner(o.Log),
		breaker: newBreaker(o.Log.With("redis", strings.Join(o.Addresses, ", "))),
		purges:  defaultPurgeLimits, leadTimeout: defaultLeadTimeout,
		lives:     newLives(),
		responses: semaphore.NewWeighted(math.MaxInt64),
		news:      make(chan struct{}, 1), heard: make(chan struct{}, 1), synced: make(chan struct{}),
		loopEnded: make(chan struct{}),
	}
	f.life, f.end = context.WithCancel(context.Background())
	f.beating, f.endBeat = context.WithCancel(f.life)
	f.logRead.Store(&logRead{next: make(chan struct{})})
	f.applied.Store(-1)
	f.local.Store(&Local{Purge: func(cache.Match) {}}) // until Start
	self, err := newIdentity(&o, o.Advertise, o.Secret)
	if err != nil {
		return nil, err
	}
	f.self.Store(self)
	f.setMembers("", nil)
	var dialed func(net.Conn)
	if o.AutoListen != "" {
		dialed = f.address.note
	}
	f.rdb = o.client(dialed)
	config := f.currentTLS()
	f.transport = newTransport(config, o.LockTTL, f.lives)
	f.server = newPeerServer(config, o.LockTTL, &f.admission, f.warn)
	f.locks = cachelock.New(f.rdb, cachelock.Options{Prefix: o.KeyPrefix, Holder: self.holder, TTL: o.LockTTL})
	if f.folders, err = f.locks.Folders("files"); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock folders: %w", err), f.Close())
	}
	return f, nil
}

// ask sends one request to Redis, within Options.Timeout, unless the breaker is open.
func (f *Fleet) ask(ctx context.Context, what string, request func(context.Context) error) error {
	if _, err := f.breaker.allow(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	return f.judge(ctx, what, request(limited))
}

// judge reports the outcome of a request to the breaker, and wraps the error in its kind. A request
// that its caller cancelled is no sign of a failure of Redis.
func (f *Fleet) judge(ctx context.Context, what string, err error) error {
	var held *cachelock.HeldError
	switch {
	case err == nil, errors.Is(err, redis.Nil), errors.Is(err, cachelock.ErrLost), errors.As(err, &held):
		f.breaker.note(nil, false)
		return err
	case errors.Is(err, cachelock.ErrInvalid), errors.Is(err, cachelock.ErrNotHeld):
		return fmt.Errorf("cannot %s: %w", what, err)
	case ended(ctx) != nil:
		return fmt.Errorf("cannot %s: %w", what, ended(ctx))
	case errors.Is(err, cachelock.ErrClosed), f.life.Err() != nil:
		return fmt.Errorf("cannot %s: %w: this gateway stops", what, cache.ErrFleetDown)
	}
	f.breaker.note(err, false)
	return fmt.Errorf("cannot %s: %w: %w", what, cache.ErrFleetDown, err)
}

// ended returns the cause of the end of a caller's context; nil = it has not ended. A connection
// may notice the deadline of the context before the context does: that is no failure of Redis
// either.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// key returns the name of a key or channel in Redis.
func (f *Fleet) key(name string) string { return f.o.KeyPrefix + ":{0}:" + name }

func millis(d time.Duration) int64 { return max(d.Milliseconds(), 1) }
