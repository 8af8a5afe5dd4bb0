package cachelock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options of a client. The zero value means the defaults.
type Options struct {
	// Prefix begins every key and channel in Redis; default "cachelock". With "{}" in it nothing works in a Cluster.
	Prefix string
	// Holder tells others who has a lock: an address, a host name; default "host:pid". It stands in the tokens.
	Holder string
	// TTL of locks that name none; default 30 s.
	TTL time.Duration
	// Shards is how many slots of a Redis Cluster the locks are spread over, and how many fence counters there are, which are the
	// only keys without expiry; default 16. All programs that share locks must agree on it.
	Shards int
	// Poll is how often somebody who waits looks whether the lock is free without having been told, up to half more at random;
	// default 1 s.
	Poll time.Duration
	// NodeTimeout is how long a Redlock waits for a node when the other nodes have not decided; default a tenth of the ttl, at most
	// 50 ms. It has to be longer than the way to the nodes, and far shorter than the ttl.
	NodeTimeout time.Duration
}

func (o *Options) setDefaults() {
	if o.Prefix == "" {
		o.Prefix = "cachelock"
	}
	if o.Holder == "" {
		host, _ := os.Hostname() // without one, the pid has to do
		o.Holder = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if o.TTL <= 0 {
		o.TTL = 30 * time.Second
	}
	if o.Shards <= 0 {
		o.Shards = 16
	}
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
}

// LockOptions of one lock. The zero value means the defaults.
type LockOptions struct {
	// TTL is how long the lock lasts when nobody extends it; default Options.TTL. At least 10 ms.
	TTL time.Duration
	// Policy says what to do while another has it; default: give up at once.
	Policy Policy
	// Renew extends the lock by itself, at a third of its TTL, until it is released, or MaxHold is over.
	Renew bool
	// MaxHold ends the renewal of a lock that was forgotten; default 1 h.
	MaxHold time.Duration
	// Owner makes the lock reentrant: whoever names the same owner, in a client with the same Holder, takes it again, and it is
	// free when each has released it, those who have lost it as well. A process that starts again under the same Holder, and asks
	// before the lock has expired, goes on with it.
	Owner string
	// Fair serves those who wait in the order in which they came, over all processes. Everybody who takes the lock must say so.
	Fair bool
}

// MinTTL is the shortest time to live. Below that, a lock has expired before its holder knows that he has it.
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
	switch {
	case o.TTL < MinTTL:
		return invalid("ttl %s is below %s", o.TTL, MinTTL)
	case o.Owner != "" && o.Fair:
		return invalid("a reentrant lock cannot be fair")
	}
	return nil
}

// Locker takes locks. The clients of this package are Lockers, whatever keeps their locks: Redis, several Redis, this process.
type Locker interface {
	// Acquire takes the lock, or says by its error why not.
	Acquire(ctx context.Context, key string, o LockOptions) (*Lock, error)
}

// Client takes locks. It is safe for use by many goroutines; a process needs one.
type Client struct {
	o       Options
	store   store
	process string // in queues and on channels
	seq     atomic.Uint64
	fences  []string // names of the counters, by shard
	lines   lines

	folderLines folderLines

	ctx    context.Context // of work that nobody waits for; ended by Close
	cancel context.CancelFunc
	mu     sync.Mutex // guards closed, and running against Add after Wait
	closed bool
	// running counts goroutines: renewals, and locks that are given back because their request failed.
	running sync.WaitGroup
	// returning bounds how many locks are being given back.
	returning chan struct{}
}

var _ Locker = (*Client)(nil)

// store keeps locks.
type store interface {
	// acquire takes all keys or none. It is a *HeldError when one is held; then, if w.waiter is not empty, the client will be
	// told of its release. A request that failed is given back in the background, so its token is not to be used again.
	acquire(ctx context.Context, w wanted) (holding, int64, error)
	// leave takes a waiter out of the queue of the key, and tells the next when the lock is free.
	leave(ctx context.Context, key, waiter string) error
	// listen makes sure that releases are told, before anybody waits for them.
	listen(ctx context.Context) error
	// close ends listening.
	close() error
}

// holding is what was acquired, as its store knows it.
type holding interface {
	// extend is ErrLost when it is not ours any more. Only when sooner is true does it ever end sooner than it would have.
	extend(ctx context.Context, ttl time.Duration, sooner bool) error
	// release is ErrLost when it was not ours any more.
	release(ctx context.Context) error
}

// wanted is a request for locks.
type wanted struct {
	keys     []string
	token    string
	hold     string // not empty: reentrant, token is the owner
	ttl      time.Duration
	waiter   string // name in the queue, empty: does not wait
	patience time.Duration
	fair     bool
}

// New returns a client for one Redis: standalone, behind Sentinel, or a Cluster. The Redis client stays the caller's.
func New(rdb redis.UniversalClient, o Options) *Client {
	c := newClient(o)
	c.store = newRedisStore(rdb, c)
	return c
}

// newClient returns a client without a store.
func newClient(o Options) *Client {
	o.setDefaults()
	c := &Client{o: o, process: randomHex(), returning: make(chan struct{}, maxReturning)}
	for n := range o.Shards {
		c.fences = append(c.fences, o.Prefix+":{"+strconv.Itoa(n)+"}"+fenceName)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close ends what runs in the background, those who wait included, and waits for what is on its way. Locks that are still held are
// not released: they expire, unless their holder releases them, which those of a Redlock cannot be any more. Closing again does
// nothing.
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

// begin counts a goroutine in; it is false when the client has been closed.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.running.Add(1)
	}
	return !c.closed
}

// Acquire takes one lock.
func (c *Client) Acquire(ctx context.Context, key string, o LockOptions) (*Lock, error) {
	return c.acquire(ctx, []string{key}, o)
}

// acquire takes locks of one shard.
func (c *Client) acquire(ctx context.Context, keys []string, o LockOptions) (*Lock, error) {
	if err := o.check(c); err != nil {
		return nil, err
	}
	if err := checkKeys(keys); err != nil {
		return nil, err
	}
	w := c.wanted(keys, &o)
	if !o.Policy.waits() {
		if err := c.usable(ctx); err != nil {
			return nil, err
		}
		return c.attempt(ctx, w, "", o)
	}
	return c.take(ctx, keys[0], o, func(ctx context.Context, waiter string) (*Lock, error) {
		return c.attempt(ctx, w, waiter, o)
	})
}

// wanted is the request for keys.
func (c *Client) wanted(keys []string, o *LockOptions) wanted {
	w := wanted{keys: keys, ttl: o.TTL, fair: o.Fair, patience: c.patience()}
	if o.Owner != "" {
		w.token, w.hold = "owner "+url.QueryEscape(o.Owner)+":"+c.o.Holder, randomHex()
	} else {
		w.token = c.newToken()
	}
	return w
}

// attempt makes one attempt.
func (c *Client) attempt(ctx context.Context, w wanted, waiter string, o LockOptions) (*Lock, error) {
	w.waiter = waiter
	start := time.Now()
	h, fence, err := c.store.acquire(ctx, w)
	if err != nil {
		return nil, err
	}
	return c.granted(ctx, w.keys, w.token, h, fence, start, o)
}

// usable is the error of a request that need not be made.
func (c *Client) usable(ctx context.Context) error {
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}

// granted makes a lock of what a request that began at start has acquired, unless it is over already.
func (c *Client) granted(ctx context.Context, keys []string, token string, h holding, fence int64, start time.Time, o LockOptions) (*Lock, error) {
	if time.Since(start) >= validity(o.TTL) {
		c.giveBack(h)
		return nil, fmt.Errorf("%w: %w of %s", ErrUnreachable, errLate, o.TTL)
	}
	return c.newLock(ctx, keys, token, h, fence, start, o), nil
}

// patience is how long somebody who waits stays in a queue without coming again: longer than the longest poll.
func (c *Client) patience() time.Duration { return 4 * c.o.Poll }

func checkKeys(keys []string) error {
	for _, key := range keys {
		if key == "" || len(key) > maxKey {
			return invalid("a key has 1 to %d bytes, not %d", maxKey, len(key))
		}
	}
	return nil
}

// maxReturning bounds how many locks are given back at the same time; what comes on top expires.
const maxReturning = 256

// giveBack releases in the background what nobody wants any more, as soon as Redis serves. After some seconds it is left to expire.
func (c *Client) giveBack(h holding) {
	if !c.begin() {
		return
	}
	select {
	case c.returning <- struct{}{}:
	default:
		c.running.Done()
		return
	}
	go func() {
		defer func() { <-c.returning; c.running.Done() }()
		for pause := 50 * time.Millisecond; pause < 5*time.Second; pause *= 2 {
			if released(h) {
				return
			}
			select {
			case <-time.After(pause):
			case <-c.ctx.Done():
				return
			}
		}
	}()
}

// released tries to release, and tells whether there is an answer. Close waits for it.
func released(h holding) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := h.release(ctx)
	return !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrCancelled)
}

// newToken returns 128 random bits and the holder's name.
func (c *Client) newToken() string {
	text := random()
	return string(text[:]) + ":" + c.o.Holder
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

// member is the name of a waiter in a queue: the process, and for a fair lock the number of the waiter.
func (c *Client) member(fair bool) string {
	if !fair {
		return c.process
	}
	return c.process + "/" + strconv.FormatUint(c.seq.Add(1), 10)
}
