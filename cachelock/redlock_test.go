package cachelock_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// masters are independent Redis servers, each behind a relay.
type masters struct {
	t       *testing.T
	servers []*redistest.Server
	relays  []*redistest.Relay
	direct  []*redis.Client // connected without the relays
	clients map[*cachelock.Client][]*redis.Client
}

func newMasters(t *testing.T, n int) *masters {
	t.Helper()
	m := &masters{t: t, clients: map[*cachelock.Client][]*redis.Client{}}
	for range n {
		s := redistest.Start(t)
		m.servers = append(m.servers, s)
		m.relays = append(m.relays, redistest.NewRelay(t, s.Addr()))
		m.direct = append(m.direct, s.Client())
	}
	return m
}

// redlock returns a new client of all masters. Its default node timeout is long, for slow machines:
// operations that do not depend on the timeout must be much faster.
func (m *masters) redlock(o cachelock.Options) *cachelock.Client {
	m.t.Helper()
	if o.NodeTimeout == 0 {
		o.NodeTimeout = soon
	}
	var nodes []redis.UniversalClient
	var clients []*redis.Client
	for _, r := range m.relays {
		rdb := redis.NewClient(&redis.Options{Addr: r.Addr(), ContextTimeoutEnabled: true, DialerRetries: 1,
			ReadTimeout: soon})
		m.t.Cleanup(func() { rdb.Close() })
		nodes, clients = append(nodes, rdb), append(clients, rdb)
	}
	c := cachelock.NewRedlock(nodes, o)
	m.clients[c] = clients
	m.t.Cleanup(func() { require.NoError(m.t, c.Close()) })
	return c
}

// name returns the key of a lock on every node.
func name(key string) string { return "cachelock:{0}:lock:" + key }

// votes returns the values of a lock, one from each running node that has the lock.
func (m *masters) votes(key string) (values []string) {
	m.t.Helper()
	for _, rdb := range m.direct {
		if v, err := rdb.Get(m.t.Context(), name(key)).Result(); err == nil {
			values = append(values, v)
		}
	}
	return values
}

// foreign sets a lock of another holder on nodes.
func (m *masters) foreign(key string, ttl time.Duration, nodes ...int) {
	m.t.Helper()
	for _, i := range nodes {
		require.NoError(m.t, m.direct[i].Set(m.t.Context(), name(key), "0123:somebody", ttl).Err())
	}
}

// warm loads the scripts into every node, and waits until the client has an idle connection to
// each.
func (m *masters) warm(c *cachelock.Client) {
	m.t.Helper()
	for range 2 {
		lock := takes(m.t, c, "warm")
		eventually.True(m.t, func() bool { return len(m.votes("warm")) == len(m.servers) })
		_ = lock.Release(m.t.Context()) // if nodes reply too late, the lock is released in the background
		m.eventuallyFree("warm")
	}
	for _, rdb := range m.clients[c] {
		eventually.True(m.t, func() bool {
			pool := rdb.PoolStats()
			return pool.IdleConns > 0 && pool.IdleConns == pool.TotalConns
		})
	}
}

func (m *masters) eventuallyFree(key string) {
	m.t.Helper()
	eventually.True(m.t, func() bool { return len(m.votes(key)) == 0 })
}

// long has a ttl that no test reaches: eventually.Limit is shorter.
var long = cachelock.LockOptions{TTL: time.Hour}

func TestRedlockRejects(t *testing.T) {
	t.Parallel()
	none := cachelock.NewRedlock(nil, cachelock.Options{})
	defer none.Close()
	_, err := none.Acquire(t.Context(), "k", long)
	require.ErrorIs(t, err, cachelock.ErrInvalid)

	c := newMasters(t, 1).redlock(cachelock.Options{})
	_, err = c.Acquire(t.Context(), "k", cachelock.LockOptions{Fair: true})
	require.ErrorIs(t, err, cachelock.ErrInvalid)
}

// TestRedlockValidity: the validity of a lock starts before the first request, and is shorter than
// the ttl by the clock drift.
func TestRedlockValidity(t *testing.T) {
	t.Parallel()
	m := newMasters(t, 3)
	c := m.redlock(cachelock.Options{})
	m.warm(c)
	for _, r := range m.relays {
		r.Delay(100 * time.Millisecond)
	}
	const ttl, drift = 100 * time.Second, 1002 * time.Millisecond
	before := time.Now()
	lock, err := c.Acquire(t.Context(), "k", cachelock.LockOptions{TTL: ttl})
	require.NoError(t, err)
	require.False(t, lock.Until().After(time.Now().Add(ttl-drift-100*time.Millisecond)), "the way there is not counted")
	require.False(t, lock.Until().Before(before.Add(ttl-drift)))

	before = time.Now()
	require.NoError(t, lock.Extend(t.Context(), 2*ttl))
	require.False(t, lock.Until().After(time.Now().Add(2*ttl-2*drift)))
	require.False(t, lock.Until().Before(before.Add(2*ttl-2*drift)))
}

// TestRedlockOneNodeHangs: a node that hangs delays no request while the other nodes decide, even
// if the Redis clients do not abandon hanging requests.
func TestRedlockOneNodeHangs(t *testing.T) {
	m := newMasters(t, 3)
	var nodes []redis.UniversalClient
	for _, r := range m.relays {
		rdb := redis.NewClient(&redis.Options{Addr: r.Addr(), ReadTimeout: soon})
		defer rdb.Close()
		nodes = append(nodes, rdb)
	}
	c := cachelock.NewRedlock(nodes, cachelock.Options{NodeTimeout: soon})
	defer c.Close()
	m.relays[1].Hang()
	start := time.Now()
	for range 3 {
		lock, err := c.Acquire(t.Context(), "k", cachelock.LockOptions{TTL: 2 * time.Minute})
		require.NoError(t, err)
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		require.NoError(t, lock.Release(t.Context()))
	}
	require.Less(t, time.Since(start), soon, "nobody has waited for the node timeout")
	m.relays[1].Restore()
}

func TestRedlockTwoNodesDown(t *testing.T) {
	t.Parallel()
	m := newMasters(t, 3)
	c := m.redlock(cachelock.Options{NodeTimeout: 500 * time.Millisecond})
	lock := takes(m.t, c, "before")
	m.servers[0].Kill()
	m.servers[1].Kill()
	_, err := c.Acquire(t.Context(), "k", long)
	require.ErrorIs(t, err, cachelock.ErrUnreachable)
	require.NotErrorIs(t, err, cachelock.ErrHeld)
	m.eventuallyFree("k") // the third node has released the lock

	require.ErrorIs(t, lock.Extend(t.Context(), time.Minute), cachelock.ErrUnreachable)
	require.NoError(t, lock.Context().Err(), "it lasts as long as its validity")
	require.ErrorIs(t, lock.Release(t.Context()), cachelock.ErrUnreachable)
}

// TestRedlockCancelled: a cancelled request returns, and nodes that have granted the lock release
// it.
func TestRedlockCancelled(t *testing.T) {
	m := newMasters(t, 3)
	c := m.redlock(cachelock.Options{NodeTimeout: soon})
	m.warm(c)
	m.relays[0].Hang()
	m.relays[1].Mute() // grants the lock, but the reply does not arrive
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := c.Acquire(ctx, "k", long)
		failed <- err
	}()
	eventually.True(t, func() bool { return len(m.votes("k")) == 2 })
	cancel()
	require.ErrorIs(t, <-failed, cachelock.ErrCancelled)
	m.relays[0].Restore()
	m.relays[1].Restore()
	m.eventuallyFree("k")
}

// TestRedlockVotes: a minority of other votes does not reject a request, and keeps its locks. If a
// majority is held, also while another node is down, the error is a HeldError, whose time ends with
// the first lock of the majority.
func TestRedlockVotes(t *testing.T) {
	t.Parallel()
	m := newMasters(t, 3)
	c := m.redlock(cachelock.Options{})
	m.foreign("minority", time.Minute, 2)
	lock, err := c.Acquire(t.Context(), "minority", long)
	require.NoError(t, err)
	require.NoError(t, lock.Release(t.Context()))
	eventually.True(t, func() bool { return len(m.votes("minority")) == 1 })
	require.Equal(t, []string{"0123:somebody"}, m.votes("minority"), "what is not ours stays")

	m.foreign("majority", 30*time.Second, 0)
	m.foreign("majority", 40*time.Second, 1)
	_, err = c.Acquire(t.Context(), "majority", long)
	var held *cachelock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "somebody", held.Holder)
	require.Greater(t, held.TTL, time.Second)
	require.LessOrEqual(t, held.TTL, 30*time.Second, "with the first of the two it would be most")
	eventually.True(t, func() bool { return len(m.votes("majority")) == 2 }, "the third one's vote is given back")

	m.foreign("held and down", time.Minute, 0)
	m.servers[1].Kill()
	_, err = c.Acquire(t.Context(), "held and down", long)
	require.ErrorIs(t, err, cachelock.ErrHeld)
}

// TestRedlockReleaseReachesSlowNode: a slow node that granted the lock after the majority had
// decided releases it too.
func TestRedlockReleaseReachesSlowNode(t *testing.T) {
	t.Parallel()
	m := newMasters(t, 3)
	c := m.redlock(cachelock.Options{})
	m.warm(c)
	for _, slow := range []func(*redistest.Relay){(*redistest.Relay).Hang, (*redistest.Relay).Mute} {
		before := m.servers[2].Commands()["set"]
		slow(m.relays[2])
		lock, err := c.Acquire(t.Context(), "k", long)
		require.NoError(t, err)
		require.NoError(t, lock.Release(t.Context()))
		time.AfterFunc(200*time.Millisecond, m.relays[2].Restore)
		eventually.True(t, func() bool { return m.servers[2].Commands()["set"] > before }, "it was taken")
		m.eventuallyFree("k")
	}
}

func TestRedlockLost(t *testing.T) {
	t.Parallel()
	m := newMasters(t, 3)
	c := m.redlock(cachelock.Options{})
	lock, err := c.Acquire(t.Context(), "k", long)
	require.NoError(t, err)
	require.Zero(t, lock.Fence(), "there is no fence over independent masters")
	eventually.True(t, func() bool { return len(m.votes("k")) == 3 })
	values := m.votes("k")
	require.Equal(t, []string{values[0], values[0], values[0]}, values, "the same token everywhere")
	m.foreign("k", time.Minute, 0)
	require.NoError(t, lock.Extend(t.Context(), time.Minute), "two nodes are enough")
	m.foreign("k", time.Minute, 1)
	require.ErrorIs(t, lock.Extend(t.Context(), time.Minute), cachelock.ErrLost)
	require.ErrorIs(t, context.Cause(lock.Context()), cachelock.ErrLost)
	require.ErrorIs(t, lock.Release(t.Context()), cachelock.ErrLost)
	eventually.True(t, func() bool { return len(m.votes("k")) == 2 })
}

// TestRedlockMayBeLost: if one of three nodes has lost the lock and one is down, a majority may
// still have the lock: the error is ErrUnreachable. It is ErrLost when the second node is back
// without the lock.
func TestRedlockMayBeLost(t *testing.T) {
	t.Parallel()
	m := newMasters(t, 3)
	c := m.redlock(cachelock.Options{})
	m.warm(c)
	lock, err := c.Acquire(t.Context(), "k", long)
	require.NoError(t, err)
	eventually.True(t, func() bool { return len(m.votes("k")) == 3 })
	m.foreign("k", time.Hour, 0)
	m.servers[1].Kill()
	err = lock.Extend(t.Context(), 2*time.Hour)
	require.ErrorIs(t, err, cachelock.ErrUnreachable)
	require.NotErrorIs(t, err, cachelock.ErrLost)
	require.NoError(t, lock.Context().Err())
	m.servers[1].Restart()           // without its data
	eventually.True(t, func() bool { // until the client has connected to the node again
		err = lock.Extend(t.Context(), 2*time.Hour)
		return !errors.Is(err, cachelock.ErrUnreachable)
	})
	require.ErrorIs(t, err, cachelock.ErrLost)
}

// TestRedlockRefused: the error of a lock says that connections were refused, also if the time of a
// node ends while its client still tries again.
func TestRedlockRefused(t *testing.T) {
	var nodes []redis.UniversalClient
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, ln.Close())
		rdb := redis.NewClient(&redis.Options{Addr: ln.Addr().String()})
		defer rdb.Close()
		nodes = append(nodes, rdb)
	}
	c := cachelock.NewRedlock(nodes, cachelock.Options{NodeTimeout: 300 * time.Millisecond})
	defer c.Close()
	_, err := c.Acquire(t.Context(), "refused", cachelock.LockOptions{})
	require.ErrorIs(t, err, cachelock.ErrUnreachable)
	require.NotErrorIs(t, err, cachelock.ErrCancelled)
	require.ErrorContains(t, err, "connection refused")
}
