package tests

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/stampede/crowd"

	"github.com/stretchr/testify/require"
)

// crowds are the numbers of clients, and sizes those of files, for which there is time.
func crowds() []int {
	if long {
		return []int{500, 2000}
	}
	return []int{100}
}

func sizes() []int {
	if long {
		return []int{4 << 10, 1 << 20, 64 << 20}
	}
	return []int{4 << 10, 6 << 20}
}

func fleets() []int {
	if long {
		return []int{1, 2, 3}
	}
	return []int{1, 3}
}

// TestCacheStampede: a crowd that asks for a cold file costs the storages one download of each segment, whatever the number of
// gateways.
func TestCacheStampede(t *testing.T) {
	if !long {
		t.Parallel() // others wait most of the time
	}
	for _, gateways := range fleets() {
		f := startFleet(t, fleetOptions{gateways: gateways, cache: []string{"memory_max = 512MB"}})
		for _, size := range sizes() {
			for _, clients := range crowds() {
				t.Run(fmt.Sprintf("%d gateways, %d clients, %d bytes", gateways, clients, size), func(t *testing.T) {
					id, content := f.put(size)
					f.slow(200*time.Millisecond, 500*time.Millisecond, size)
					f.forgetCounts()
					locks := f.metric(`fdfs_gateway_lock_acquire_total{result="ok"}`)
					requireWhole(t, f.crowd(clients, id, content))
					n := f.cluster.Downloads(id)
					require.Equal(t, segmentsOf(size), n.Downloads, "one download of each segment")
					require.LessOrEqual(t, float64(n.Bytes), 1.05*float64(size))
					require.Zero(t, f.questions(), "a download says all that there is to know")
					taken := f.metric(`fdfs_gateway_lock_acquire_total{result="ok"}`) - locks
					require.LessOrEqual(t, taken, float64(3*gateways*segmentsOf(size)), "all waiters of a process cost one call")

					f.fault(fdfstest.Faults{Hang: true})
					r := f.crowd(clients, id, content)
					requireWhole(t, r)
					require.NotContains(t, xCaches(r), "MISS", "everybody has it now")
					f.fault()
				})
			}
		}
	}
}

func expiredSizes() []int {
	if long {
		return sizes()
	}
	return []int{6 << 20}
}

func expiredFleets() []int {
	if long {
		return fleets()
	}
	return []int{3} // time goes by while files expire
}

// TestCacheExpired: an expired file is served at once, and one gateway asks whether it is still there; while the storages are dead
// it is served too; and when it was deleted all gateways know after that one question.
func TestCacheExpired(t *testing.T) {
	t.Parallel() // most of the time goes by while nothing happens
	for _, gateways := range expiredFleets() {
		for _, size := range expiredSizes() {
			f := startFleet(t, fleetOptions{gateways: gateways, cache: []string{"memory_max = 512MB", "ttl = 1s", "stale_if_error = 1h"}})
			clients := crowds()[0]
			id, content := f.put(size)
			f.warm(id, content)
			expire := func() {
				time.Sleep(1500 * time.Millisecond)
				f.forgetCounts()
			}
			name := fmt.Sprintf("%d gateways, %d bytes", gateways, size)
			t.Run(name+", live", func(t *testing.T) {
				expire()
				f.slow(300*time.Millisecond, 0, 0)
				r := f.crowd(clients, id, content)
				requireWhole(t, r)
				require.NotZero(t, xCaches(r)["STALE"], xCaches(r))
				require.Zero(t, f.cluster.Downloads(id).Downloads, "content of an id never changes")
				time.Sleep(500 * time.Millisecond)
				require.LessOrEqual(t, f.questions(), 2, "one question, and one more where it took so long that the answer had expired")
			})
			t.Run(name+", dead", func(t *testing.T) {
				expire()
				for _, s := range f.cluster.Storages() {
					s.Kill()
				}
				r := f.crowd(clients, id, content)
				requireWhole(t, r)
				require.NotZero(t, xCaches(r)["STALE"], xCaches(r))
				for _, s := range f.cluster.Storages() {
					require.NoError(t, s.Revive())
				}
			})
			t.Run(name+", deleted", func(t *testing.T) {
				f.slow(0, 0, 0)
				require.NoError(t, f.cluster.Remove(id))
				expire()
				r := f.crowd(clients, id, content)
				requireHonest(t, r)
				require.Equal(t, len(r), r.Count(crowd.Whole)+r.Status(404)+r.Count(crowd.Cut), r.String())
				require.Eventually(t, func() bool {
					r := f.crowd(3*gateways, id, content)
					return r.Status(404) == len(r)
				}, 20*time.Second, 50*time.Millisecond, "it is gone")
				require.Zero(t, f.cluster.Downloads(id).Downloads)
			})
		}
	}
}

// TestCacheRefreshWaitsForNobody: while the storages take their time to say that an expired file is still there, no request waits
// for them.
func TestCacheRefreshWaitsForNobody(t *testing.T) {
	const delay = 4 * time.Second
	f := startFleet(t, fleetOptions{gateways: 2, cache: []string{"ttl = 2s"}})
	id, content := f.put(100 << 10)
	f.warm(id, content)
	f.fault(fdfstest.Faults{Delay: delay})
	time.Sleep(2500 * time.Millisecond)
	r := crowd.Run(crowd.Options{Clients: 200, URLs: f.urls(id), Want: content, Pause: 5 * time.Millisecond, Timeout: crowdTime})
	requireWhole(t, r)
	require.NotZero(t, xCaches(r)["STALE"], xCaches(r))
	require.Less(t, r.Whole(1), delay/2, "nobody waited")
	require.Zero(t, f.cluster.Downloads(id).Downloads-1)
}

// TestCacheStaleIfError: beyond the time for which an expired file is served at once, it is served when the storages fail, and only
// for as long as that is allowed.
func TestCacheStaleIfError(t *testing.T) {
	t.Parallel() // most of the time goes by while nothing happens
	for allowed, status := range map[string]int{"1h": 200, "0": 502} {
		t.Run(allowed, func(t *testing.T) {
			f := startFleet(t, fleetOptions{gateways: 1, cache: []string{"ttl = 1s", "stale_while_revalidate = 0", "stale_if_error = " + allowed}})
			id, content := f.put(1000)
			f.warm(id, content)
			time.Sleep(1200 * time.Millisecond)
			for _, s := range f.cluster.Storages() {
				s.Kill()
			}
			answer := f.gateways[0].get(url(id))
			require.Equal(t, status, answer.StatusCode)
			if status == 200 {
				require.Equal(t, "STALE", answer.Header.Get("X-Cache"))
				require.Equal(t, content, answer.body)
			}
		})
	}
}

// TestCacheRanges: random ranges of a large file fetch the segments that they touch, once, and every byte is right.
func TestCacheRanges(t *testing.T) {
	size, clients, rounds := 24<<20, 100, 1
	if long {
		size, rounds = 100<<20, 5
	}
	f := startFleet(t, fleetOptions{gateways: 2, cache: []string{"memory_max = 512MB"}})
	id, content := f.put(size)
	f.slow(50*time.Millisecond, 500*time.Millisecond, segment)
	var mu sync.Mutex // guards touched
	touched := map[int64]bool{}
	for range rounds {
		r := crowd.Run(crowd.Options{Clients: clients, URLs: f.urls(id), Want: content, Timeout: crowdTime, Range: func(i int) (int64, int64) {
			random := newRandom(uint64(i))
			first := random.Int64N(int64(size) / 2) // half of the file stays untouched
			length := 1 + random.Int64N(min(500<<10, int64(size)/2-first))
			mu.Lock()
			defer mu.Unlock()
			for s := first / segment; s <= (first+length-1)/segment; s++ {
				touched[s] = true
			}
			return first, length
		}})
		requireWhole(t, r)
	}
	n := f.cluster.Downloads(id)
	require.LessOrEqual(t, float64(n.Bytes), 1.1*float64(len(touched)*segment))
	require.LessOrEqual(t, n.Downloads, len(touched))
	t.Logf("%d of %d segments touched, %d downloads of %.3f of their bytes", len(touched), segmentsOf(size), n.Downloads, float64(n.Bytes)/float64(len(touched)*segment))
}

// TestCacheSaysWhere: X-Cache and the metrics tell who fetched a file, who got it from another gateway, and who had it; for small
// files too, which are there before anybody has looked.
func TestCacheSaysWhere(t *testing.T) {
	f := startFleet(t, fleetOptions{gateways: 2})
	for i, size := range []int{100, 100 << 10, 5 << 20} {
		id, _ := f.put(size)
		var said []string
		for _, m := range []*member{f.gateways[0], f.gateways[0], f.gateways[1], f.gateways[1]} {
			said = append(said, m.get(url(id)).Header.Get("X-Cache"))
			require.Eventually(t, func() bool { return f.metric("fdfs_gateway_cache_flights") == 0 }, 20*time.Second, 5*time.Millisecond)
		}
		require.Equal(t, []string{"MISS", "HIT", "PEER", "HIT"}, said, "%d bytes", size)
		for source, n := range map[string]int{"origin": 1, "peer": 1, "memory": 2} {
			require.Equal(t, float64(n*(i+1)), f.metric(`fdfs_gateway_requests_total{code="200",source="`+source+`"}`), source)
		}
	}
}

// TestCacheSaysWhereAlone: the same where nobody else is asked, and a small file is there at once.
func TestCacheSaysWhereAlone(t *testing.T) {
	f := startFleet(t, fleetOptions{gateways: 1, noRedis: true})
	for range 20 {
		id, _ := f.put(100)
		require.Equal(t, "MISS", f.gateways[0].get(url(id)).Header.Get("X-Cache"))
		require.Eventually(t, func() bool { return f.metric("fdfs_gateway_cache_flights") == 0 }, 20*time.Second, 5*time.Millisecond)
		require.Equal(t, "HIT", f.gateways[0].get(url(id)).Header.Get("X-Cache"))
	}
	require.Equal(t, 20.0, f.metric("fdfs_gateway_cache_misses_total"))
	require.Equal(t, 20.0, f.metric(`fdfs_gateway_cache_hits_total{tier="memory"}`))
}

// TestCacheMarked: what another server has sent here, by the loop guard, is sent for the files of this host: it is never answered
// out of the cache.
func TestCacheMarked(t *testing.T) {
	f := startFleet(t, fleetOptions{gateways: 1})
	id, content := f.put(1000)
	f.warm(id, content)
	require.Equal(t, 404, f.gateways[0].get(url(id)+"?redirect=1").StatusCode)
	require.Equal(t, 200, f.gateways[0].get(url(id)).StatusCode)
}
