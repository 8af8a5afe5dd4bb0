package tests

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	neturl "net/url"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/stampede/crowd"
	"fastdfs-gateway/tests/stampede/lab"

	"github.com/stretchr/testify/require"
)

// trouble is something that goes wrong in the middle of a fill. The first gateway leads it.
type trouble struct {
	name  string
	begin func(f *fleet)
	end   func(f *fleet) // after the crowd has been asking for a while; nil = nothing
	after time.Duration  // when
	// harmed says whose clients may get an error; nil = nobody's.
	harmed func(gateway int) bool
}

// leaseTTL is short, so that a test does not wait long for the lease of a dead gateway.
const leaseTTL = 2 * time.Second

var troubles = []trouble{
	{name: "redis killed", begin: func(f *fleet) { f.redis.Kill() }, end: func(f *fleet) { f.redis.Restart() }, after: time.Second},
	{name: "redis stopped", begin: func(f *fleet) { f.redis.Pause() }, end: func(f *fleet) { f.redis.Resume() }, after: 2 * time.Second},
	{name: "leader killed", begin: func(f *fleet) { f.gateways[0].Kill() }, harmed: isLeader},
	{name: "leader stopped for longer than its lease", begin: func(f *fleet) { f.gateways[0].Pause() },
		end: func(f *fleet) { f.gateways[0].Resume() }, after: 3 * leaseTTL, harmed: isLeader},
	{name: "leader cut off from the others", begin: func(f *fleet) { f.gateways[0].relay.Cut() }, end: func(f *fleet) { f.gateways[0].relay.Restore() },
		after: 3 * time.Second},
	{name: "leader not answering the others", begin: func(f *fleet) { f.gateways[0].relay.Hang() }, end: func(f *fleet) { f.gateways[0].relay.Restore() },
		after: 3 * leaseTTL},
}

// harms tells whether the clients of a gateway may get an error.
func (x *trouble) harms(gateway int) bool { return x.harmed != nil && x.harmed(gateway) }

func isLeader(gateway int) bool { return gateway == 0 }

// troubleCase is a trouble in a fleet of some size, while a crowd reads a file.
type troubleCase struct {
	*trouble
	gateways, clients, size int
}

func (c troubleCase) String() string {
	return fmt.Sprintf("%s, %d gateways, %d bytes", c.name, c.gateways, c.size)
}

// troubleCases are those for which there is time; size is that of the file where there is little.
func troubleCases(size int) (list []troubleCase) {
	gateways, sizes, clients := []int{2}, []int{size}, 60
	if long {
		gateways, sizes, clients = []int{2, 3}, []int{4 << 10, 1 << 20, 64 << 20}, 500
	}
	for i := range troubles {
		for _, n := range gateways {
			for _, size := range sizes {
				list = append(list, troubleCase{&troubles[i], n, clients, size})
			}
		}
	}
	return list
}

// troublesAtOnce is how many of them run at a time: a crowd of 500 has the machine for itself.
func troublesAtOnce() int {
	if long {
		return 1
	}
	return len(troubles)
}

// TestCacheTrouble: whatever fails in the middle of a fill, every client gets the exact content or an error that it can see, those of
// gateways that live get the content, and each segment is downloaded at most twice.
func TestCacheTrouble(t *testing.T) {
	t.Parallel() // most of the time goes by while nothing happens
	together(t, troublesAtOnce(), troubleCases(3<<20), troubleCase.String, func(c troubleCase, t *testing.T) {
		require.NoError(t, punctually(t, nil, func() error { return c.run(t, c.gateways, c.clients, c.size) }))
	})
}

// run plays a trouble. Its error says that it has cost too much.
func (x *trouble) run(t *testing.T, gateways, clients, size int) error {
	f := startFleet(t, fleetOptions{gateways: gateways, relayed: true, cache: []string{"memory_max = 512MB"}, lines: []string{"[lock]", "ttl = " + leaseTTL.String()}})
	id, content := f.put(size)
	f.slow(300*time.Millisecond, 3*time.Second, size)
	lone := make(chan crowd.Report)
	go func() { // the first gateway leads
		lone <- crowd.Run(crowd.Options{Clients: 1, URLs: urlsOf(f.gateways[:1], id), Want: content, Timeout: crowdTime})
	}()
	f.begun(id, 1)
	all := make(chan crowd.Report)
	go func() { all <- f.crowd(clients, id, content) }()
	f.begun(id, int64(size/3))
	x.begin(f)
	if x.end != nil {
		time.Sleep(x.after)
		x.end(f)
	}
	first, report := <-lone, <-all
	requireHonest(t, first)
	requireHonest(t, report)
	for i := range report {
		if !x.harms(i % gateways) {
			require.Equal(t, crowd.Whole, report[i].Outcome, "client %d of gateway %d: %v", i, i%gateways, report[i].Err)
		}
	}
	n := f.cluster.Downloads(id)
	if n.Downloads > 2*segmentsOf(size) {
		return fmt.Errorf("%d downloads of %d segments, want each at most twice", n.Downloads, segmentsOf(size))
	}
	t.Logf("%d downloads, %.2f of the bytes, whole after %v at most", n.Downloads, float64(n.Bytes)/float64(size), report.Whole(1))
	return nil
}

// TestCacheBreaksOff: a download that breaks off at half is resumed where it ended, and clients notice nothing.
func TestCacheBreaksOff(t *testing.T) {
	size := 3 << 20
	f := startFleet(t, fleetOptions{gateways: 2})
	half := size / 2
	f.fault(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, BreakAt: &half})
	require.NoError(t, f.punctually(func() error {
		id, content := f.put(size)
		requireWhole(t, f.crowd(60, id, content))
		if n := f.cluster.Downloads(id); n.Downloads != 2 || float64(n.Bytes) > 1.05*float64(size) {
			return fmt.Errorf("%d downloads with %d bytes of %d, want two halves", n.Downloads, n.Bytes, size)
		}
		return nil
	}))
}

// TestCacheBreaksForGood: a download that always breaks off after a few bytes is an error that every client can see.
func TestCacheBreaksForGood(t *testing.T) {
	f := startFleet(t, fleetOptions{gateways: 2})
	id, content := f.put(3 << 20)
	few := 1000
	f.fault(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, BreakAt: &few})
	r := f.crowd(60, id, content)
	requireHonest(t, r)
	require.Zero(t, r.Count(crowd.Whole), r.String())
	f.fault()
	requireWhole(t, f.crowd(60, id, content))
}

// TestCacheRedisAway: without Redis the gateways go on, and when it is back they share again, by themselves.
func TestCacheRedisAway(t *testing.T) {
	t.Parallel() // most of the time goes by while nothing happens
	f := startFleet(t, fleetOptions{gateways: 2, storages: 1})
	get := func() {
		t.Helper()
		id, content := f.put(10 << 10)
		requireWhole(t, f.crowd(20, id, content))
	}
	get()
	f.sharing()
	f.redis.Kill()
	for range 20 {
		get()
	}
	require.Eventually(t, func() bool { return f.metric("fdfs_gateway_redis_up") == 0 }, patience, 50*time.Millisecond)
	f.redis.Restart()
	f.sharing()
	require.NoError(t, f.punctually(func() error {
		id, content := f.put(10 << 10)
		requireWhole(t, f.crowd(50, id, content))
		if n := f.cluster.Downloads(id).Downloads; n != 1 {
			return fmt.Errorf("%d downloads: they do not share again", n)
		}
		return nil
	}))

	f.redis.Pause() // it accepts, and is silent
	for range 5 {
		get()
	}
	f.redis.Resume()
	f.sharing()
}

// TestCacheStartsWithoutRedis: a gateway whose Redis is away starts and serves.
func TestCacheStartsWithoutRedis(t *testing.T) {
	t.Parallel() // most of the time goes by while nothing happens
	f := startFleet(t, fleetOptions{gateways: 1, storages: 1})
	f.redis.Kill()
	m := f.gateways[0]
	m.Stop()
	m.start(t)
	id, content := f.put(10 << 10)
	requireWhole(t, f.crowd(20, id, content))
	require.Equal(t, 1, f.cluster.Downloads(id).Downloads)
}

// TestCacheWarmCostsNothing: for what is warm Redis is not asked at all, and many who wait for one cold file cost one lock call.
func TestCacheWarmCostsNothing(t *testing.T) {
	f := startFleet(t, fleetOptions{gateways: 1})
	var ids []fdfs.FileID
	locks := func() float64 {
		return f.metric(`fdfs_gateway_lock_acquire_total{result="ok"}`) + f.metric(`fdfs_gateway_lock_acquire_total{result="held"}`)
	}
	f.slow(200*time.Millisecond, 0, 0)
	for range 8 {
		require.NoError(t, f.punctually(func() error {
			id, content := f.put(1000)
			ids = append(ids, id)
			before := locks()
			requireWhole(t, f.crowd(100, id, content))
			if n := locks() - before; n != 1 {
				return fmt.Errorf("%v lock calls", n)
			}
			return nil
		}))
	}
	f.settled()
	calls := func() (n int64) {
		for _, c := range f.redis.Commands() {
			n += c
		}
		return n
	}
	start, before := time.Now(), calls()
	const clients = 1000
	var running sync.WaitGroup
	for i := range 10 {
		running.Go(func() {
			for j := range clients / 10 {
				p := f.gateways[0].in(t)
				if code := p.get(url(ids[(i+j)%len(ids)])).StatusCode; code != 200 {
					t.Errorf("status %d", code)
				}
			}
		})
	}
	running.Wait()
	// A gateway shows every second that it lives, and reads the log of purges.
	heartbeats := int64(20 * (time.Since(start).Seconds() + 1))
	asked := calls() - before
	t.Logf("%d calls to Redis in %v", asked, time.Since(start))
	require.Less(t, asked, heartbeats+clients/2)
}

// TestCachePeersAreChecked: what another gateway may ask, nobody else may, and nobody twice.
func TestCachePeersAreChecked(t *testing.T) {
	f := startFleet(t, fleetOptions{gateways: 1})
	id, content := f.put(1000)
	f.warm(id, content)
	g := f.gateways[0]
	uri := "/_peer/segment?file=" + neturl.QueryEscape(id.String()) + "&index=0&offset=0"
	header := peerHeader(lab.Secret, "http://"+g.addrs[0], uri)
	require.Equal(t, 403, g.get(uri).StatusCode, "not signed")
	require.Equal(t, 403, g.get(uri, peerHeader("another secret", "http://"+g.addrs[0], uri)).StatusCode, "forged")
	require.Equal(t, 403, g.get(uri, peerHeader(lab.Secret, "http://127.0.0.1:1", uri)).StatusCode, "for another gateway")
	require.Equal(t, 403, g.get(uri+"1", header).StatusCode, "for another request")
	answer := g.get(uri, header)
	require.Equal(t, 200, answer.StatusCode)
	require.True(t, bytes.Contains(answer.body, content), "the segment is in the answer")
	require.Equal(t, 403, g.get(uri, header).StatusCode, "sent again")

	alone := startFleet(t, fleetOptions{gateways: 1, noRedis: true}).gateways[0]
	peer, other := alone.get(uri, header), alone.get("/_other/segment?file=x")
	require.Equal(t, other.StatusCode, peer.StatusCode, "where no peers are expected the path is as bad as any other")
	require.Equal(t, string(other.body), string(peer.body))
}

// peerHeader signs a request for a segment as another gateway does.
func peerHeader(secret, to, uri string) string {
	at, nonce := time.Now().UnixMilli(), fmt.Sprintf("%032x", rand.Uint64())
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "v1\nGET\n%s\n%s\n%d\n%s\ntest\n", to, uri, at, nonce)
	return fmt.Sprintf("X-Fdfs-Peer: v1 time=%d nonce=%s from=test mac=%x", at, nonce, mac.Sum(nil))
}
