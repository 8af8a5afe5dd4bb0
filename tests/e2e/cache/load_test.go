package cache

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// The load: so many connections, and on each a request every loadPause, which makes 2,000 a second.
const (
	loadConns = 20
	loadPause = 10 * time.Millisecond
)

// sample is one request of the load.
type sample struct {
	round  int
	took   time.Duration
	stale  bool // the answer came from an expired entry
	asking bool // the storage was thinking about the file at that time
}

// TestCacheExpiresUnderLoad: while 2,000 requests a second ask for one file, its entry is refreshed
// again and again by a storage that takes half a second to answer, and now and then the storage is
// away and it expires. None of the requests waits for that. How the times compare is told, with
// TEST_LONG=1 over a minute and a half; they are the machine's.
func TestCacheExpiresUnderLoad(t *testing.T) {
	t.Parallel()
	if !e2e.Long {
		t.Skip("TestCacheRefreshDelaysNoClient says the same in less time")
	}
	const delay, rounds = 500 * time.Millisecond, 10
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, Cache: []string{"ttl = 3s"}})
	id, content := f.Put(4 << 10)
	f.Warm(id, content)
	f.Slow(delay, 0, 0)
	f.ForgetCounts()
	var stop atomic.Bool
	var round atomic.Int32
	all := load(f, id, len(content), delay, &stop, &round)
	for range rounds {
		time.Sleep(4 * time.Second)
		f.Fault(fdfstest.Faults{Commands: []byte{fdfstest.CmdFileInfo}, Status: 5})
		time.Sleep(5 * time.Second)
		f.Slow(delay, 0, 0)
		round.Add(1)
	}
	stop.Store(true)
	samples := all()
	for _, state := range []struct {
		name string
		is   func(sample) bool
	}{
		{"fresh", func(s sample) bool { return !s.asking && !s.stale }},
		{"while it is refreshed", func(s sample) bool { return s.asking && !s.stale }},
		{"expired", func(s sample) bool { return s.stale }},
	} {
		n, p50, p99 := medians(samples, rounds, state.is)
		t.Logf("%s: p50 %v, p99 %v of %d, median of %d rounds", state.name, p50, p99, n, rounds)
		require.NotZero(t, n, state.name)
		require.Less(t, p99, delay/2, "they would wait for half a second")
	}
	require.Zero(t, f.Cluster.Downloads(id).Downloads)
}

// load starts the requests. The function that it returns waits for the last ones and gives all of
// them.
func load(f *e2e.Fleet, id fdfs.FileID, size int, delay time.Duration, stop *atomic.Bool,
	round *atomic.Int32) func() []sample {
	var running sync.WaitGroup
	var mu sync.Mutex // guards all
	var all []sample
	var until atomic.Int64 // when the storage has answered, in nanoseconds
	running.Go(func() {    // looks when the storage is asked
		for seen := 0; !stop.Load(); time.Sleep(time.Millisecond) {
			if n := f.Questions(); n > seen {
				seen = n
				until.Store(time.Now().Add(delay).UnixNano())
			}
		}
	})
	for i := range loadConns {
		running.Go(func() {
			time.Sleep(time.Duration(i) * loadPause / loadConns)
			mine, err := askAgain(f.Gateways[0], id, size, stop, round, &until)
			if err != nil {
				f.T.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	return func() []sample {
		running.Wait()
		return all
	}
}

// askAgain asks for a file on one connection, every loadPause.
func askAgain(m *e2e.Member, id fdfs.FileID, size int, stop *atomic.Bool, round *atomic.Int32,
	until *atomic.Int64) (list []sample, err error) {
	conn, err := net.Dial("tcp", m.Addrs[0])
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	tick := time.NewTicker(loadPause)
	defer tick.Stop()
	for !stop.Load() {
		<-tick.C
		began := time.Now()
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", e2e.Path(id)); err != nil {
			return list, err
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return list, err
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || n != int64(size) || resp.StatusCode != 200 {
			return list, fmt.Errorf("status %d with %d bytes: %v", resp.StatusCode, n, err)
		}
		list = append(list, sample{round: int(round.Load()), took: time.Since(began),
			stale: resp.Header.Get("X-Cache") == "STALE", asking: began.UnixNano() < until.Load()})
	}
	return list, nil
}

// medians are those over all rounds of the median and the 99th percentile of a round: what else a
// machine does for a moment spoils one of them.
func medians(samples []sample, rounds int, which func(sample) bool) (n int, p50, p99 time.Duration) {
	times := make([][]time.Duration, rounds)
	for _, s := range samples {
		if which(s) && s.round < rounds {
			times[s.round] = append(times[s.round], s.took)
			n++
		}
	}
	var halves, highs []time.Duration
	for _, list := range times {
		if len(list) > 0 {
			slices.Sort(list)
			halves, highs = append(halves, list[len(list)/2]), append(highs, list[len(list)*99/100])
		}
	}
	if n == 0 {
		return 0, 0, 0
	}
	slices.Sort(halves)
	slices.Sort(highs)
	return n, halves[len(halves)/2].Round(time.Microsecond), highs[len(highs)/2].Round(time.Microsecond)
}
