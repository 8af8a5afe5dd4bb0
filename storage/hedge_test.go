package storage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

func TestBudget(t *testing.T) {
	b := budget{rate: 0.05 * hedgePrice}
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

// warm gives the first server a history.
func (r *rig) warm(id fdfs.FileID) {
	for range historyMin {
		r.stat(id)
	}
}

// slow makes the next answer of the first storage late.
func (r *rig) slow(by time.Duration) {
	r.Storage(0).SetFaults(fdfstest.Faults{Delay: by, Times: 1})
}

// One answer in 31 is slow: most of these are cut short, for at most 5 % more requests.
func TestHedge(t *testing.T) {
	r := newRig(t, 2, ClientOptions{})
	body := content(3000)
	id := r.put(fdfstest.FileSpec{Content: body})
	info := r.stat(id)
	r.warm(id)
	const every, delay = 31, time.Second
	const calls = 30 * every
	cut := 0
	for i := range calls {
		if i%every == 0 {
			r.slow(delay)
		}
		start := time.Now()
		if i%2 == 0 {
			require.Equal(t, info.Size, r.stat(id).Size)
		} else {
			s, err := r.c.Open(context.Background(), id, info, 0, info.Size, r.servers)
			require.NoError(t, err)
			got, err := io.ReadAll(s)
			require.NoError(t, err)
			require.True(t, bytes.Equal(body, got))
			require.NoError(t, s.Close())
		}
		if i%every == 0 && time.Since(start) < delay/2 {
			cut++
		}
	}
	stats := r.c.Stats()
	t.Logf("%d calls, %d slow answers, %d of them cut short; requests %d, second ones %d, of which first %d",
		calls, calls/every, cut, stats.Requests, stats.Hedges, stats.HedgeWins)
	require.GreaterOrEqual(t, cut, calls/every/2)
	require.GreaterOrEqual(t, stats.HedgeWins, uint64(cut))
	require.LessOrEqual(t, stats.Hedges, (stats.Requests-stats.Hedges)/20)
	require.Zero(t, stats.Failures)
	require.Zero(t, stats.Resumes)
}

func TestNoHedge(t *testing.T) {
	for name, test := range map[string]struct {
		budget  float64
		cold    bool
		servers int
		dead    bool
	}{
		"never":          {budget: -1, servers: 2},
		"no history":     {budget: 1, servers: 2, cold: true},
		"one server":     {budget: 1, servers: 1},
		"the other dead": {budget: 1, servers: 2, dead: true},
		"next to none":   {budget: 1e-9, servers: 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, ClientOptions{HedgeBudget: test.budget})
			r.servers = r.servers[:test.servers]
			id := r.put(fdfstest.FileSpec{Content: content(3000)})
			if !test.cold {
				r.warm(id)
			}
			if test.dead {
				m, err := r.c.acquire(r.servers[1])
				require.NoError(t, err)
				r.Storage(1).Kill()
				for range deadAfter {
					m.health.failed(time.Now(), false)
				}
				r.c.release(m)
			}
			hedges := r.c.Stats().Hedges
			r.slow(50 * time.Millisecond)
			r.stat(id)
			require.Equal(t, hedges, r.c.Stats().Hedges)
		})
	}
}

// The first server hangs. The second one's failure or ignorance is not taken for the answer.
func TestHedgeOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		first, second fdfstest.Faults
		from          int // -1 = none
		wins          uint64
	}{
		"second wins":            {first: fdfstest.Faults{Hang: true}, from: 1, wins: 1},
		"first after all":        {first: fdfstest.Faults{Delay: 300 * time.Millisecond}, second: fdfstest.Faults{Delay: time.Second}, from: 0},
		"second does not have":   {first: fdfstest.Faults{Delay: 300 * time.Millisecond}, second: fdfstest.Faults{Status: 2}, from: 0},
		"second fails":           {first: fdfstest.Faults{Delay: 300 * time.Millisecond}, second: fdfstest.Faults{Status: 5}, from: 0},
		"first fails late":       {first: fdfstest.Faults{Delay: 300 * time.Millisecond, Status: 5}, second: fdfstest.Faults{Delay: 600 * time.Millisecond}, from: 1, wins: 1},
		"both fail, third saves": {first: fdfstest.Faults{Delay: 300 * time.Millisecond, Status: 5}, second: fdfstest.Faults{Status: 5}, from: 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 3, ClientOptions{HedgeBudget: 1})
			id := r.put(fdfstest.FileSpec{Content: content(3000)})
			r.warm(id)
			before := r.c.Stats()
			r.Storage(0).SetFaults(test.first)
			r.Storage(1).SetFaults(test.second)
			require.Equal(t, r.servers[test.from], r.stat(id).From)
			stats := r.c.Stats()
			require.Equal(t, uint64(1), stats.Hedges-before.Hedges)
			require.Equal(t, test.wins, stats.HedgeWins-before.HedgeWins)
		})
	}
}

// A server that always loses is asked after the others.
func TestAlwaysOutrun(t *testing.T) {
	r := newRig(t, 2, ClientOptions{HedgeBudget: 1})
	id := r.put(fdfstest.FileSpec{Content: content(3000)})
	r.warm(id)
	r.Storage(0).SetFaults(fdfstest.Faults{Hang: true, Commands: []byte{fdfstest.CmdFileInfo}})
	for range slowAfter {
		require.Equal(t, r.servers[1], r.stat(id).From)
	}
	r.Storage(0).SetFaults(fdfstest.Faults{Hang: true})
	require.Equal(t, r.servers[1], r.c.Order(r.servers)[0])
}

// Both servers are asked for their version of a file that may change.
func TestHedgeVersion(t *testing.T) {
	r := newRig(t, 2, ClientOptions{HedgeBudget: 1})
	id := r.put(fdfstest.FileSpec{Kind: fdfs.KindAppender, Content: content(3000)})
	r.warm(id)
	r.Storage(0).SetFaults(fdfstest.Faults{Hang: true, Commands: []byte{fdfstest.CmdDownload}})
	s := r.open(id)
	require.Equal(t, r.servers[1], s.From())
	require.NoError(t, s.Close())
	require.Positive(t, r.requests(1, fdfs.CmdFileInfo))
}

// Close waits for second requests, and none is left behind when the caller goes.
func TestHedgeCancel(t *testing.T) {
	r := newRig(t, 2, ClientOptions{HedgeBudget: 1})
	id := r.put(fdfstest.FileSpec{Content: content(3000)})
	r.warm(id)
	for _, s := range r.Storages() {
		s.SetFaults(fdfstest.Faults{Hang: true})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := r.c.Stat(ctx, id, r.servers)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), time.Second)
	time.AfterFunc(100*time.Millisecond, r.c.Close)
	_, err = r.c.Stat(context.Background(), id, r.servers)
	require.ErrorIs(t, err, errClientClosed)
}

// raceOnce runs a race between two servers whose answers are made here. Both have an end that is counted.
func raceOnce(t *testing.T, c *Client, first, second func(ctx context.Context) error) (won string, dropped []string, errs [2]error) {
	servers := []Server{{"192.0.2.1", 1}, {"192.0.2.2", 1}}
	m, err := c.acquire(servers[0])
	require.NoError(t, err)
	for range historyMin {
		m.health.answered(time.Microsecond)
	}
	c.release(m)
	a, asked, errs := race(context.Background(), c, servers, question[string]{
		ask: func(ctx context.Context, m *member) (string, error) {
			if m.server == servers[0] {
				return "first", first(ctx)
			}
			return "second", second(ctx)
		},
		drop: func(name string) { dropped = append(dropped, name) },
	})
	require.Equal(t, 2, asked)
	if a.end != nil {
		a.end()
	}
	c.Close() // and all goroutines have ended
	return a.value, dropped, errs
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
	// late answers well although nobody waits any more
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
		errs          [2]error
	}{
		"first is outrun":                  {first: lost(&cause), second: good, won: "second", cause: errOutrun, errs: [2]error{errOutrun, nil}},
		"first answers as well":            {first: late, second: good, won: "second", dropped: []string{"first"}},
		"second is not needed":             {first: slowly, second: lost(&cause), won: "first", cause: errNotNeeded},
		"second answers as well":           {first: slowly, second: late, won: "first", dropped: []string{"second"}},
		"second fails":                     {first: slowly, second: fails, won: "first"},
		"first fails, second is there":     {first: failsSlowly, second: good, won: "second", errs: [2]error{errTest, nil}},
		"both fail":                        {first: failsSlowly, second: fails, errs: [2]error{errTest, errTest}},
		"first fails, second is waited on": {first: failsSlowly, second: func(context.Context) error { time.Sleep(400 * time.Millisecond); return nil }, won: "second", errs: [2]error{errTest, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			cause = nil
			c := newClient(ClientOptions{HedgeBudget: 1}, quick)
			won, dropped, errs := raceOnce(t, c, test.first, test.second)
			require.Equal(t, test.won, won)
			require.Equal(t, test.dropped, dropped)
			require.Equal(t, test.cause, cause)
			require.Equal(t, test.errs, errs)
		})
	}
}

// TestHangingStorages: one live replica behind several that hang is reached soon, without any history to hedge by.
func TestHangingStorages(t *testing.T) {
	r := newRig(t, 5, ClientOptions{Pool: fdfs.PoolOptions{NetworkTimeout: 10 * time.Second}})
	r.c.t.impatience = 50 * time.Millisecond
	text := content(1000)
	id, err := r.Put(fdfstest.FileSpec{Storage: r.Storage(0), Content: text, Ext: "jpg"})
	require.NoError(t, err)
	for i := range 4 {
		r.Storage(i).Partition(true)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	info, err := r.c.Stat(ctx, id, r.servers)
	require.NoError(t, err)
	require.Equal(t, r.servers[4], info.From)
	stream, err := r.c.Open(ctx, id, info, 0, 1000, r.servers)
	require.NoError(t, err)
	got, err := io.ReadAll(stream)
	require.NoError(t, errors.Join(err, stream.Close()))
	require.Equal(t, text, got)
	require.Less(t, time.Since(began), 2*time.Second)
	for i := range 4 {
		r.Storage(i).Partition(false)
	}
}

// TestManyBreaks: a source that breaks again and again, and gives something each time, is good for the whole file.
func TestManyBreaks(t *testing.T) {
	r := newRig(t, 1, ClientOptions{})
	text := content(4 << 20)
	id, err := r.Put(fdfstest.FileSpec{Storage: r.Storage(0), Content: text, Ext: "jpg"})
	require.NoError(t, err)
	at := 300 << 10
	r.Storage(0).SetFaults(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, BreakAt: &at})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	info, err := r.c.Stat(ctx, id, r.servers)
	require.NoError(t, err)
	stream, err := r.c.Open(ctx, id, info, 0, int64(len(text)), r.servers)
	require.NoError(t, err)
	got, err := io.ReadAll(stream)
	require.NoError(t, errors.Join(err, stream.Close()))
	require.True(t, bytes.Equal(text, got))
	require.EqualValues(t, 13, r.c.Stats().Resumes)
}
