package cachelock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/process/panics"

	"github.com/redis/go-redis/v9"
)

// Options of a client. The zero value of each field means its default.
type Options struct {
	// Prefix begins every key and channel in Redis; default "cachelock". All locks of a prefix are
	// in one slot of a Cluster; a hash tag in the prefix, as in "{orders}", chooses another one.
	Prefix string
	// Holder identifies the holder of a lock to others: an address, a host name; default
	// "host:pid". It is a part of the tokens.
	Holder string
	// TTL is the default of LockOptions.TTL; default 30 s.
	TTL time.Duration
	// Poll is the interval in which a waiting process checks the lock without having been notified,
	// up to half longer at random; default 1 s.
	Poll time.Duration
	// NodeTimeout bounds the wait of a Redlock for a node while the other nodes have not decided;
	// default a tenth of the ttl, at most 50 ms. It must be longer than the round trip to the
	// nodes, and far shorter than the ttl.
	NodeTimeout time.Duration
}

func (o *Options) setDefaults() {
	if o.Prefix == "" {
		o.Prefix = "cachelock"
	}
	if o.Holder == "" {
		host, _ := os.Hostname() // on failure the holder is the pid alone
		o.Holder = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if o.TTL <= 0 {
		o.TTL = 30 * time.Second
	}
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
}

// LockOptions of one lock. The zero value of each field means its default.
type LockOptions struct {
	// TTL is the time to live of the lock unless it is extended; default Options.TTL, at least
	// MinTTL.
	TTL time.Duration
	// Policy defines whether and how to wait while another holder has the lock; default: do not
	// wait.
	Policy Policy
	// Renew extends the lock automatically, after each third of its TTL, until it is released or
	// lost, MaxHold has passed, or the Client is closed.
	Renew bool
	// MaxHold ends the renewal of a lock that is never released; default 1 h.
	MaxHold time.Duration
	// Owner makes the lock reentrant: it can be acquired again with the same Owner by a client with
	// the same Holder. The lock is free when each acquisition has been released, including the lost
	// ones, or when it expires. A process that restarts with the same Holder, and acquires the lock
	// before it has expired, continues to hold it.
	Owner string
	// Fair serves waiters in the order of their arrival, over all processes. All users of the lock
	// must set it.
	Fair bool
	// TakeOver releases the lock first if an earlier process with the same Holder has it, as after
	// a crash; waiters are notified. The holder must name one process at a time. An earlier process
	// that still runs gets ErrLost at its next renewal or extension.
	TakeOver bool
	// Holder identifies the holder of this lock; default Options.Holder. A process whose name
	// changes while it runs sets it: a held lock keeps the name with which it was acquired.
	Holder string
}

// MinTTL is the shortest time to live. A shorter lock expires before its holder has the reply.
const MinTTL = 10 * time.Millisecond

// maxKey bounds the length of a key in bytes.
const maxKey = 4096

func (o *LockOptions) check(c *Client) error {
	if o.TTL == 0 {
		o.TTL = c.o.TTL
	}
	if o.MaxHold <= 0 {
		o.MaxHold = time.Hour
	}
	if o.Holder == "" {
		o.Holder = c.o.Holder
	}
	switch {
	case o.TTL < MinTTL:
		return invalid("ttl %s is below %s", o.TTL, MinTTL)
	case o.Owner != "" && o.Fair:
		return invalid("a reentrant lock cannot be fair")
	case o.Owner != "" && o.TakeOver:
		return invalid("a reentrant lock is continued by its owner, and not taken over")
	}
	return nil
}

// Locker acquires locks, as a Client does.
type Locker interface {
	// Acquire acquires the lock or returns the reason as an error.
	Acquire(ctx context.Context, key string, o LockOptions) (*Lock, error)
}

// Client acquires locks. It is safe for concurrent use; a process needs one.
type Client struct {
	o          Options
	store      store
	process    string // name of this process in queues and channels
	seq        atomic.Uint64
	slot       string // begins all keys: p:{0}, see doc.go
	waitQueues waitQueues

	ctx    context.Context // of background work; cancelled by Close
	cancel context.CancelFunc
	mu     sync.Mutex // guards closed, and running against Add after Wait
	closed bool
	// running counts goroutines: renewals, and releases in the background.
	running sync.WaitGroup
	// releasing bounds the releases in the background.
	releasing chan struct{}
}

var _ Locker = (*Client)(nil)

// store keeps locks.
type store interface {
	// acquire acquires all keys or none. The error is a *HeldError if one is held; then, if
	// w.waiter is not empty, the client is notified of its release. A failed request is released in
	// the background, so its token must not be used again.
	acquire(ctx context.Context, w lockRequest) (holding, int64, error)
	// leave removes a waiter from the lock's queue, and notifies the next one if the lock is free.
	leave(ctx context.Context, key, waiter string) error
	// listen subscribes to notifications of releases. It is called before waiting.
	listen(ctx context.Context) error
	// close ends the subscription.
	close() error
}

// holding is the state that a store keeps for acquired locks.
type holding interface {
	// extend sets a new expiry, unless the lock expires later already. It returns ErrLost if the
	// lock is not held with this token any more.
	extend(ctx context.Context, ttl time.Duration) error
	// releaseKeys releases the locks. It returns ErrLost if one was not held with this token any
	// more.
	releaseKeys(ctx context.Context) error
}

// lockRequest is a request for locks.
type lockRequest struct {
	keys     []string
	token    string
	hold     string // not empty: a reentrant lock, token names the owner
	ttl      time.Duration
	waiter   string // name in the queue; empty = does not wait
	fair     bool
	takeOver bool   // releases locks of earlier processes with the name holder
	holder   string // for takeOver
}

// New returns a client for one Redis: standalone, behind Sentinel, or a Cluster. The caller closes
// rdb, after the client.
func New(rdb redis.UniversalClient, o Options) *Client {
	c := newClient(o)
	c.store = newRedisStore(rdb, c)
	return c
}

// newClient returns a client without a store.
func newClient(o Options) *Client {
	o.setDefaults()
	c := &Client{o: o, slot: o.Prefix + ":{0}", process: randomHex(), releasing: make(chan struct{}, maxReleasing)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close cancels background work and waiting calls, and waits for running requests. It does not
// release held locks: they expire unless their holders release them, which is not possible for
// locks of a Redlock. Further calls of Close do nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	was := c.closed
	c.closed = true
	c.mu.Unlock()
	if was {
		return nil
	}
	c.cancel()
	err := c.store.close()
	c.running.Wait()
	return err
}

// beginWork counts a goroutine that Close waits for; false if the client is closed.
func (c *Client) beginWork() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.running.Add(1)
	}
	return !c.closed
}

// Acquire acquires one lock.
func (c *Client) Acquire(ctx context.Context, key string, o LockOptions) (*Lock, error) {
	return c.acquireKeys(ctx, []string{key}, o)
}

// maxKeys bounds the locks of one AcquireAll.
const maxKeys = 1024

// AcquireAll acquires several locks by one script, all or none. The HeldError has the key of the
// held lock. All of them have the same fence.
func (c *Client) AcquireAll(ctx context.Context, keys []string, o LockOptions) (*Lock, error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	switch {
	case len(keys) == 0 || len(keys) > maxKeys:
		return nil, invalid("1 to %d locks can be taken together, not %d", maxKeys, len(keys))
	case o.Owner != "" || o.Fair:
		return nil, invalid("locks taken together can be neither reentrant nor fair")
	}
	return c.acquireKeys(ctx, keys, o)
}

func (c *Client) acquireKeys(ctx context.Context, keys []string, o LockOptions) (*Lock, error) {
	if err := o.check(c); err != nil {
		return nil, err
	}
	for _, key := range keys {
		if key == "" || len(key) > maxKey {
			return nil, invalid("a key has 1 to %d bytes, not %d", maxKey, len(key))
		}
	}
	return c.acquireOrWait(ctx, keys[0], o, func(ctx context.Context, waiter string) (*Lock, error) {
		w := newRequest(keys, waiter, &o)
		start := time.Now()
		h, fence, err := c.store.acquire(ctx, w)
		if err != nil {
			return nil, err
		}
		return c.granted(ctx, keys, w.token, h, fence, start, o)
	})
}

// newRequest returns the request of one attempt. Each attempt has a new token, or a new hold: the
// locks of an earlier attempt may still be released in the background.
func newRequest(keys []string, waiter string, o *LockOptions) lockRequest {
	w := lockRequest{keys: keys, waiter: waiter, ttl: o.TTL, fair: o.Fair, takeOver: o.TakeOver, holder: o.Holder}
	if o.Owner != "" {
		w.token, w.hold = ownerPrefix+url.QueryEscape(o.Owner)+":"+o.Holder, randomHex()
	} else {
		w.token = newToken(o.Holder)
	}
	return w
}

// granted returns the lock that a request sent at start has acquired, unless it has expired
// already.
func (c *Client) granted(ctx context.Context, keys []string, token string, h holding, fence int64, start time.Time,
	o LockOptions) (*Lock, error) {
	if time.Since(start) >= validity(o.TTL) {
		c.releaseInBackground(h, o.TTL)
		return nil, fmt.Errorf("%w: %w of %s", ErrUnreachable, errLate, o.TTL)
	}
	l := &Lock{c: c, keys: keys, token: token, holding: h, fence: fence, taken: start, o: o, base: ctx,
		until: start.Add(validity(o.TTL))}
	if o.Renew {
		l.mu.Lock() // the timer may fire at once
		defer l.mu.Unlock()
		l.setTimerLocked(l.timerDelayLocked())
	}
	return l, nil
}

// queueTTL is the time for which a name stays in a lock's queue without another attempt: longer
// than the longest poll interval.
func (c *Client) queueTTL() time.Duration { return 4 * c.o.Poll }

// maxReleasing bounds the concurrent releases in the background; further locks expire.
const maxReleasing = 256

const (
	// maxReleasePause is the longest time between two attempts of a release in the background.
	maxReleasePause = 5 * time.Second
	// minReleaseTime is the least time for the retries of a release: a hold of a reentrant lock
	// lasts for longer than its ttl if another one extends the lock.
	minReleaseTime = 10 * time.Second
)

// releaseInBackground releases a lock that is not needed. It retries while Redis is unavailable,
// until the lock must have expired.
func (c *Client) releaseInBackground(h holding, ttl time.Duration) {
	if !c.beginWork() {
		return
	}
	select {
	case c.releasing <- struct{}{}:
	default:
		c.running.Done()
		return
	}
	end := time.Now().Add(max(ttl, minReleaseTime))
	go func() {
		defer func() { <-c.releasing; c.running.Done() }()
		defer panics.Contain("releasing a lock")
		for pause := 50 * time.Millisecond; !released(h) && time.Now().Before(end); {
			select {
			case <-time.After(pause):
				pause = min(2*pause, maxReleasePause)
			case <-c.ctx.Done():
				return
			}
		}
	}()
}

// released sends a release. It reports whether Redis has replied or the client is closed, so that
// no retry is needed. Close waits for the request.
func released(h holding) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := h.releaseKeys(ctx)
	return !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrCancelled)
}

// processPart begins the tokens of this process: 64 random bits.
var processPart = randomHex()[:16]

// ownerPrefix begins the tokens of owners, which name no process.
const ownerPrefix = "owner "

// newToken returns the name of this process, 64 random bits and the holder's name.
func newToken(holder string) string {
	text := random()
	copy(text[:], processPart)
	return string(text[:]) + ":" + holder
}

// isFormer reports whether a token is that of an earlier process with this holder's name.
func isFormer(token, holder string) bool {
	_, name, _ := strings.Cut(token, ":")
	return name == holder && !strings.HasPrefix(token, processPart) && !strings.HasPrefix(token, ownerPrefix)
}

// randomHex returns 128 random bits.
func randomHex() string {
	text := random()
	return string(text[:])
}

func random() (text [32]byte) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	hex.Encode(text[:], b[:])
	return text
}

// member returns the name of a waiter in a queue: the name of the process, followed by the number
// of the waiter if the lock is fair.
func (c *Client) member(fair bool) string {
	if !fair {
		return c.process
	}
	return c.process + "/" + strconv.FormatUint(c.seq.Add(1), 10)
}
