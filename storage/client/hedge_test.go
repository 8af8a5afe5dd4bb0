package client

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

func TestBudget(t *testing.T) {
	b := budget{rate: 0.05}
	spent := 0
	for range 1000 {
		b.earn()
		if b.spend() {
			spent++
		}
	}
	require.Equal(t, 50, spent)
	for range 100_000 {
		b.earn()
	}
	for spent = 0; b.spend(); spent++ {
	}
	require.Equal(t, 20, spent, "what can be saved up is bounded")
}

// warm records the latencies that hedging needs for the first server.
func (r *rig) warm(id fdfs.FileID) {
	for range historyMin {
		r.stat(id)
	}
}

// await waits until storage i has received n requests for a file's info.
func (r *rig) await(i, n int) {
	eventually.True(r.t, func() bool { return r.requests(i, fdfs.CmdFileInfo) >= n })
}

// TestHedge: of slow replies, one in 31, at least half are cancelled, for at most 5 % more
// requests.
func TestHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(Options{}, unprobed)
		defer c.Close()
		servers := []Server{{Host: "192.0.2.1", Port: 1}, {Host: "192.0.2.2", Port: 1}}
		const every, delay = 31, time.Second
		const calls = 30 * every
		rng := rand.New(rand.NewPCG(1, 2))
		cut := 0
		for i := range calls {
			start := time.Now()
			took := map[Server]time.Duration{servers[1]: 5 * time.Millisecond,
				servers[0]: time.Millisecond + time.Duration(rng.IntN(10_000_000))}
			if i%every == 0 {
				took[servers[0]] = delay
			}
			a, err := c.askEach(context.Background(), servers,
				request{ask: func(ctx context.Context, m *member) (reply, error) {
					select {
					case <-time.After(took[m.server]):
						return reply{part: Part{From: m.server}}, nil
					case <-ctx.Done():
						return reply{}, context.Cause(ctx)
					}
				}})
			require.NoError(t, err)
			a.end()
			if i%every == 0 && time.Since(start) < delay/2 {
				require.Equal(t, servers[1], a.part.From)
				cut++
			}
		}
		stats := c.Stats()
		t.Logf("%d calls, %d slow replies, %d of them cancelled; requests %d, second ones %d, of which first %d",
			calls, calls/every, cut, stats.Requests, stats.Hedges, stats.HedgeWins)
		require.GreaterOrEqual(t, cut, calls/every/2)
		require.GreaterOrEqual(t, stats.HedgeWins, uint64(cut))
		require.LessOrEqual(t, stats.Hedges, (stats.Requests-stats.Hedges)/20)
		require.Zero(t, stats.Failures)
	})
}

// TestHedgeDelay: a request is hedged only if hedging is on and the second server is not dead.
func TestHedgeDelay(t *testing.T) {
	servers := []Server{{Host: "192.0.2.1", Port: 1}, {Host: "192.0.2.2", Port: 1}}
	for _, share := range []float64{1, -1} {
		c := newClient(Options{HedgeBudget: share}, unprobed)
		defer c.Close()
		first, err := c.acquire(servers[0])
		require.NoError(t, err)
		second, err := c.acquire(servers[1])
		require.NoError(t, err)
		for range historyMin {
			first.health.replied(time.Millisecond)
		}
		_, hedged := c.hedgeDelay(servers)
		require.Equal(t, share > 0, hedged)
		_, hedged = c.hedgeDelay(servers[:1])
		require.False(t, hedged)
		for range deadAfter {
			second.health.failed(errTest, time.Now(), false)
		}
		_, hedged = c.hedgeDelay(servers)
		require.False(t, hedged)
	}
}

// TestAlwaysOutrun: a server that always loses against hedged requests comes last in the order.
func TestAlwaysOutrun(t *testing.T) {
	r := newRig(t, 2, Options{HedgeBudget: 1})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(3000)})
	r.warm(id)
	r.Storage(0).SetFaults(fdfstest.Faults{Hang: true, Commands: []byte{fdfstest.CmdFileInfo}})
	for range slowAfter {
		require.Equal(t, r.servers[1], r.stat(id).From)
	}
	r.Storage(0).SetFaults(fdfstest.Faults{Hang: true})
	require.Equal(t, r.servers[1], r.c.Order(r.servers)[0])
}

// TestHedgeVersion: for a file that may change, the second server must have the version of the
// first one.
func TestHedgeVersion(t *testing.T) {
	r := newRig(t, 2, Options{HedgeBudget: 1})
	id := r.put(fdfstest.FileSpec{Kind: fdfs.KindAppender, Content: contenttest.Bytes(3000)})
	r.warm(id)
	r.Storage(0).SetFaults(fdfstest.Faults{Hang: true, Commands: []byte{fdfstest.CmdDownload}})
	s := r.open(id)
	require.Equal(t, r.servers[1], s.from)
	got, err := r.read(s)
	require.NoError(t, err)
	require.True(t, bytes.Equal(contenttest.Bytes(3000), got))
	require.Positive(t, r.requests(1, fdfs.CmdFileInfo))
}

// TestLostHedgesAreNoTries: a request that lost against a hedged one does not count as a try. When
// the other server fails, the first one is used again, even if the other one broke off several
// times before.
func TestLostHedgesAreNoTries(t *testing.T) {
	r := newRig(t, 2, Options{HedgeBudget: 1})
	body := contenttest.Bytes(4 << 20)
	id := r.put(fdfstest.FileSpec{Content: body})
	r.warm(id)
	r.Storage(0).SetFaults(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, Hang: true})
	r.Storage(1).SetFaults(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, BreakAt: new(300 << 10)})
	s := r.open(id)
	defer s.Close()
	got := make([]byte, len(body))
	const seen = 700 << 10 // with three downloads, before the second server counts as dead
	_, err := io.ReadFull(s, got[:seen])
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.c.Stats().HedgeWins, uint64(triesPerServer))
	r.Storage(0).SetFaults()
	r.Storage(1).Kill()
	_, err = io.ReadFull(s, got[seen:])
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, got))
}

// TestHedgeCancel: Close waits for hedged requests, and the end of the caller's context ends both
// requests.
func TestHedgeCancel(t *testing.T) {
	r := newRig(t, 2, Options{HedgeBudget: 1, Pool: fdfs.PoolOptions{NetworkTimeout: time.Hour}})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(3000)})
	r.warm(id)
	for _, s := range r.Storages() {
		s.SetFaults(fdfstest.Faults{Hang: true})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := r.c.Stat(ctx, FetchRequest{ID: id}, r.servers) // the network timeout is an hour
	require.ErrorIs(t, err, context.DeadlineExceeded)
	asked := r.requests(0, fdfs.CmdFileInfo)
	var closed sync.WaitGroup
	closed.Go(func() {
		r.await(0, asked+1)
		r.c.Close()
	})
	_, err = r.c.Stat(context.Background(), FetchRequest{ID: id}, r.servers)
	require.ErrorIs(t, err, errClientClosed)
	closed.Wait()
}

// raceOnce runs a race between two servers with the replies of first and second. It returns the
// winner, and the servers with a good reply whose context has ended.
func raceOnce(t *testing.T, c *Client, first, second func(ctx context.Context) error) (won string, dropped []string,
	errs []error) {
	servers := []Server{{Host: "first", Port: 1}, {Host: "second", Port: 1}}
	m, err := c.acquire(servers[0])
	require.NoError(t, err)
	for range historyMin {
		m.health.replied(time.Microsecond)
	}
	c.releaseMember(m)
	var mu sync.Mutex // guards good
	good := map[string]context.Context{}
	a, errs := c.race(context.Background(), servers, request{
		ask: func(ctx context.Context, m *member) (reply, error) {
			ask := first
			if m.server == servers[1] {
				ask = second
			}
			if err := ask(ctx); err != nil {
				return reply{}, err
			}
			mu.Lock()
			defer mu.Unlock()
			good[m.server.Host] = ctx
			a := reply{part: Part{From: m.server}}
			if m.server == servers[1] {
				a.source = &source{m: m, body: http.NoBody}
			}
			return a, nil
		},
	})
	require.Len(t, errs, 2)
	won = a.part.From.Host
	for host, ctx := range good {
		if host == won {
			require.NoError(t, ctx.Err())
		} else {
			require.Error(t, ctx.Err())
			dropped = append(dropped, host)
		}
	}
	if a.end != nil {
		a.drop()
	}
	c.Close() // waits for all goroutines
	return won, dropped, errs
}

func TestRace(t *testing.T) {
	good := func(context.Context) error { return nil }
	lost := func(cause *error) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			<-ctx.Done()
			*cause = context.Cause(ctx)
			return *cause
		}
	}
	// late succeeds after the other server has won.
	late := func(ctx context.Context) error { <-ctx.Done(); return nil }
	slowly := func(ctx context.Context) error { time.Sleep(200 * time.Millisecond); return nil }
	fails := func(context.Context) error { return errTest }
	failsSlowly := func(context.Context) error { time.Sleep(200 * time.Millisecond); return errTest }
	var cause error
	for name, test := range map[string]struct {
		first, second func(ctx context.Context) error
		won           string
		dropped       []string
		cause         error
		errs          []error
	}{
		"first is outrun": {first: lost(&cause), second: good, won: "second", cause: errHedgeWon,
			errs: []error{errHedgeWon, nil}},
		"first replies as well": {first: late, second: good, won: "second", dropped: []string{"first"},
			errs: []error{nil, nil}},
		"second is not needed": {first: slowly, second: lost(&cause), won: "first", cause: errUnneeded,
			errs: []error{nil, errUnneeded}},
		"second replies as well": {first: slowly, second: late, won: "first", dropped: []string{"second"},
			errs: []error{nil, nil}},
		"second fails": {first: slowly, second: fails, won: "first", errs: []error{nil, errTest}},
		"first fails, second is there": {first: failsSlowly, second: good, won: "second",
			errs: []error{errTest, nil}},
		"both fail": {first: failsSlowly, second: fails, errs: []error{errTest, errTest}},
		"first fails, second is waited on": {first: failsSlowly,
			second: func(context.Context) error { time.Sleep(400 * time.Millisecond); return nil }, won: "second",
			errs: []error{errTest, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cause = nil
				c := newClient(Options{HedgeBudget: 1}, unprobed)
				won, dropped, errs := raceOnce(t, c, test.first, test.second)
				require.Equal(t, test.won, won)
				require.Equal(t, test.dropped, dropped)
				require.Equal(t, test.cause, cause)
				require.Equal(t, test.errs, errs)
				require.Equal(t, uint64(1), c.Stats().Hedges)
				require.Equal(t, test.won == "second", c.Stats().HedgeWins == 1)
			})
		})
	}
}

// TestRaceAndAThird: after a race that both servers have lost, the third server gets the request.
func TestRaceAndAThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{HedgeBudget: 1})
		defer c.Close()
		first := Server{Host: "first", Port: 1}
		m, err := c.acquire(first)
		require.NoError(t, err)
		for range historyMin {
			m.health.replied(time.Microsecond)
		}
		c.releaseMember(m)
		var mu sync.Mutex // guards asked
		var asked []string
		a, err := c.askEach(t.Context(), []Server{first, {Host: "second", Port: 1}, {Host: "third", Port: 1}},
			request{ask: func(_ context.Context, m *member) (reply, error) {
				mu.Lock()
				asked = append(asked, m.server.Host)
				mu.Unlock()
				if m.server.Host == "third" {
					return reply{part: Part{From: m.server}}, nil
				}
				time.Sleep(time.Second)
				return reply{}, fdfs.ErrNoFile
			}})
		require.NoError(t, err)
		a.end()
		require.Equal(t, []string{"first", "second", "third"}, asked)
		require.Equal(t, uint64(1), c.Stats().Hedges)
	})
}

// TestHangingStorages: behind four storages that hang, the fifth one is reached soon, though no
// latencies are known for hedging.
func TestHangingStorages(t *testing.T) {
	r := newRig(t, 5, Options{Pool: fdfs.PoolOptions{NetworkTimeout: time.Minute}})
	r.c.t.replyTimeout = 50 * time.Millisecond
	text := contenttest.Bytes(1000)
	id := r.put(fdfstest.FileSpec{Content: text})
	for i := range 4 {
		r.Storage(i).Partition(true)
	}
	began := time.Now()
	require.Equal(t, r.servers[4], r.stat(id).From)
	require.Equal(t, r.servers[4], r.c.Order(r.servers)[0], "those that hang are known")
	r.c.t.replyTimeout = time.Minute // not needed any more: the healthy storage is first now
	r.requireContent(id, text)
	require.Less(t, time.Since(began), patient, "one that hangs has twice that time")
}
