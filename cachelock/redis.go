package cachelock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"fastdfs-gateway/internal/process/panics"

	"github.com/redis/go-redis/v9"
)

// redisStore keeps locks in one Redis.
type redisStore struct {
	rdb redis.UniversalClient
	c   *Client
	// fence is the fence counter; wake begins the names of the channels.
	fence, wake string

	// listening holds one value while the fields below are in use: a mutex with a cancellable wait
	listening chan struct{}
	pubsub    *redis.PubSub
	closed    bool
	ended     sync.WaitGroup // of the receiving goroutine
}

var _ store = (*redisStore)(nil)

func newRedisStore(rdb redis.UniversalClient, c *Client) *redisStore {
	return &redisStore{rdb: rdb, c: c, fence: c.slot + ":fence", wake: c.channels(), listening: make(chan struct{}, 1)}
}

// channels begins the names of the channels for notifications; the name of a process follows.
func (c *Client) channels() string { return c.o.Prefix + ":wake:" }

// hold implements holding for a redisStore.
type hold struct {
	s     *redisStore
	names []string // fence; lock, queue and living of each key; holds
	keys  int
	token string
	name  string // of a reentrant hold

	nameArray             [5]string // backing array of names if they fit
	ttl, waiter, queueTTL string    // of the request
}

var _ holding = (*hold)(nil)

func (s *redisStore) newHold(w lockRequest) *hold {
	h := &hold{s: s, keys: len(w.keys), token: w.token, name: w.hold}
	if h.names = h.nameArray[:0]; len(w.keys) > 1 {
		h.names = make([]string, 0, 1+3*len(w.keys))
	}
	h.names = append(h.names, s.fence)
	for _, key := range w.keys {
		h.names = appendNames(h.names, s.c.slot, key)
	}
	if w.hold != "" {
		h.names = append(h.names, s.c.slot+":holds:"+w.keys[0])
	}
	return h
}

// appendNames appends lock, queue and living of a key, as substrings of one string.
func appendNames(names []string, slot, key string) []string {
	all := slot + ":lock:" + key + slot + ":queue:" + key + slot + ":living:" + key
	lock := len(slot) + len(":lock:") + len(key)
	queue := lock + len(slot) + len(":queue:") + len(key)
	return append(names, all[:lock], all[lock:queue], all[queue:])
}

func (s *redisStore) acquire(ctx context.Context, w lockRequest) (holding, int64, error) {
	h, fence, err := s.tryAcquire(ctx, w)
	for range w.keys { // each may be held by an earlier process
		var held *HeldError
		if !w.takeOver || !errors.As(err, &held) || !isFormer(held.token, w.holder) {
			break
		}
		former := s.newHold(lockRequest{keys: []string{held.Key}, token: held.token})
		if err := former.releaseKeys(ctx); err != nil && !errors.Is(err, ErrLost) { // ErrLost: it is free already
			return nil, 0, err
		}
		h, fence, err = s.tryAcquire(ctx, w)
	}
	return h, fence, err
}

// tryAcquire is acquire without taking over locks: one request.
func (s *redisStore) tryAcquire(ctx context.Context, w lockRequest) (holding, int64, error) {
	h := s.newHold(w)
	h.ttl, h.waiter, h.queueTTL = millis(w.ttl), w.waiter, millis(s.c.queueTTL())
	var reply *redis.Cmd
	if w.hold != "" {
		reply = run(ctx, s.rdb, reenterScript, h.names, &h.token, &h.ttl, &h.waiter, &h.queueTTL, &h.name,
			flag(false))
	} else {
		reply = run(ctx, s.rdb, acquireScript, h.names, &h.token, &h.ttl, &h.waiter, &h.queueTTL, flag(w.fair))
	}
	if err := reply.Err(); err != nil {
		s.c.releaseInBackground(h, w.ttl) // the lock may have been acquired nevertheless
		return nil, 0, failed(ctx, "acquire a lock", err)
	}
	values, _ := reply.Val().([]any)
	switch {
	case len(values) == 2 && values[0] == int64(1):
		fence, _ := values[1].(int64)
		s.wakeOwnQueues(w)
		return h, fence, nil
	case len(values) == 4:
		n, _ := values[1].(int64)
		ttl, _ := values[2].(int64) // -1 = no expiry: not set by this package
		token, _ := values[3].(string)
		if n >= 1 && int(n) <= len(w.keys) {
			if ttl == 0 && token != "" {
				ttl = 1 // less than a millisecond is left
			}
			return nil, 0, heldBy(w.keys[n-1], token, time.Duration(ttl)*time.Millisecond)
		}
	}
	return nil, 0, fmt.Errorf("%w: cannot parse the reply %v to a lock's request", ErrUnreachable, reply.Val())
}

// wakeOwnQueues notifies the wait queues of this process after one of its waiters has acquired
// locks: the script removed the name of the process from the queue in Redis of each lock, so the
// heads have to enter it again.
func (s *redisStore) wakeOwnQueues(w lockRequest) {
	if w.waiter == "" {
		return
	}
	for _, key := range w.keys {
		s.c.waitQueues.wake(queueKey{w.waiter, key})
	}
}

func (h *hold) extend(ctx context.Context, ttl time.Duration) error {
	if h.name != "" {
		return h.extendOwner(ctx, ttl)
	}
	names := make([]string, h.keys)
	for i := range names {
		names[i] = h.names[1+3*i]
	}
	ms := millis(ttl)
	n, err := run(ctx, h.s.rdb, extendScript, names, &h.token, &ms).Int()
	return holdError(ctx, "extend a lock", n == 1, err)
}

// extendOwner extends a hold of the owner and its lock.
func (h *hold) extendOwner(ctx context.Context, ttl time.Duration) error {
	ms, noWaiter, noQueueTTL := millis(ttl), "", "0"
	values, err := run(ctx, h.s.rdb, reenterScript, h.names, &h.token, &ms, &noWaiter, &noQueueTTL,
		&h.name, flag(true)).Slice()
	return holdError(ctx, "extend a lock", len(values) > 0 && values[0] == int64(1), err)
}

func (h *hold) releaseKeys(ctx context.Context) error {
	var reply *redis.Cmd
	if h.name != "" {
		reply = run(ctx, h.s.rdb, reenterReleaseScript, h.names[1:], &h.token, &h.s.wake, &h.name)
	} else {
		reply = run(ctx, h.s.rdb, releaseScript, h.names[1:], &h.token, &h.s.wake)
	}
	n, err := reply.Int()
	return holdError(ctx, "release a lock", n >= h.keys, err)
}

// holdError returns the error of a script that reports whether the lock was held.
func holdError(ctx context.Context, what string, held bool, err error) error {
	switch {
	case err != nil:
		return failed(ctx, what, err)
	case !held:
		return ErrLost
	}
	return nil
}

func (s *redisStore) leave(ctx context.Context, key, waiter string) error {
	names := appendNames(nil, s.c.slot, key)
	if err := run(ctx, s.rdb, leaveScript, names, &waiter, &s.wake).Err(); err != nil {
		return failed(ctx, "leave a queue", err)
	}
	return nil
}

// subscribeTimeout bounds the wait for the confirmation of a subscription. Only tests change it,
// before they begin.
var subscribeTimeout = 3 * time.Second

// listen subscribes to the channel of this process, once.
func (s *redisStore) listen(caller context.Context) error {
	select {
	case s.listening <- struct{}{}:
		defer func() { <-s.listening }()
	case <-caller.Done():
		return cancelled(caller)
	}
	switch {
	case s.closed:
		return ErrClosed
	case s.pubsub != nil:
		return nil
	}
	pubsub, err := s.subscribe(caller)
	if err != nil {
		return failed(caller, "subscribe to releases", err)
	}
	s.pubsub = pubsub
	messages := pubsub.ChannelWithSubscriptions()
	s.ended.Go(func() {
		for m := range messages {
			switch m := m.(type) {
			case *redis.Message:
				s.onMessage(m.Payload)
			case *redis.Subscription: // on a new connection: messages may have been lost
				s.c.waitQueues.wakeMatching(func(string) bool { return true })
			}
		}
	})
	return nil
}

// subscribe returns a confirmed subscription to the channel of this process.
// UniversalClient.Subscribe with a channel ignores a failed write, and go-redis then reads from a
// new connection that has no subscription. Receive ends with the deadline of its context, but not
// with a cancellation.
func (s *redisStore) subscribe(caller context.Context) (*redis.PubSub, error) {
	ctx, cancel := context.WithTimeout(caller, subscribeTimeout)
	defer cancel()
	pubsub := s.rdb.Subscribe(ctx)
	stop := context.AfterFunc(ctx, func() { _ = pubsub.Close() })
	err := pubsub.Subscribe(ctx, s.c.channels()+s.c.process)
	if err == nil {
		_, err = pubsub.Receive(ctx) // the confirmation
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = pubsub.Close() // an error means that it is closed
		return nil, err
	}
	return pubsub, nil
}

// onMessage handles a message: "waiter lock" from wake.lua, or one of folder_release.lua.
func (s *redisStore) onMessage(message string) {
	defer panics.Contain("a message about a released lock")
	member, name, _ := strings.Cut(message, " ")
	name, _ = strings.CutPrefix(name, s.c.slot+":")
	if key, ok := strings.CutPrefix(name, "lock:"); ok {
		queue := queueKey{member, key}
		if !s.c.waitQueues.wake(queue) {
			s.c.leaveQueue(queue) // no call waits here any more: the next in the queue is notified
		}
	}
	if released, ok := strings.CutPrefix(name, "folder-waiting:"); ok {
		s.c.onFolderMessage(released)
	}
}

func (s *redisStore) close() error {
	s.listening <- struct{}{}
	defer func() { <-s.listening }()
	s.closed = true
	if s.pubsub == nil {
		return nil
	}
	err := s.pubsub.Close()
	s.ended.Wait()
	return err
}

func millis(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

var yes, no = "1", "0"

func flag(on bool) *string {
	if on {
		return &yes
	}
	return &no
}
