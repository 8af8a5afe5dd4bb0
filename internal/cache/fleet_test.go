package cache

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/cachetest"
)

const second = time.Second

// bubble runs a test in a bubble of synctest, whose clock makes times exact.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// TestStampede: when many clients request a cold file from many gateways at once, each segment is
// fetched once. All clients read it as it arrives: their first byte comes with the first byte of
// the origin.
func TestStampede(t *testing.T) {
	for _, n := range []int{1, 3} {
		for _, size := range []int64{0, 1, SegmentSize, 2*SegmentSize + 12345} {
			bubble(t, fmt.Sprintf("%d gateways, %d bytes", n, size), func(t *testing.T) {
				o := newOrigin(testFile(1), size)
				o.first, o.whole = second/2, second
				f := newFleet()
				list := gateways(t, f, n, Options{})
				for i, r := range manyClients(list, o, 12) {
					requireWhole(t, o, r)
					if size > 0 {
						require.LessOrEqual(t, r.first, o.first+o.whole/64+10*time.Millisecond,
							"client %d waited for more than the first bytes", i)
					}
				}
				require.EqualValues(t, max(1, o.v.Segments()), o.fetches.Load(), "one fetch for each segment")
				require.EqualValues(t, size, o.served.Load())
				require.Zero(t, o.stats.Load(), "a cold GET is one round trip")
				synctest.Wait()
				require.Equal(t, o.fetches.Load(), f.leadCalls, "the owner alone asks for a lease, once for all")
				for _, c := range list {
					if s := c.Stats(); size > 0 && size <= SegmentSize {
						require.EqualValues(t, 1, s.Coalesced)
						require.EqualValues(t, 12/n, s.LargestCoalesced)
						require.EqualValues(t, 12/n-1, s.DownloadsSaved)
					}
				}
				if size > 0 {
					before := f.calls
					for _, c := range list {
						r := get(context.Background(), c, o)
						requireWhole(t, o, r)
						require.Equal(t, FromMemory, r.from)
						require.Zero(t, r.total, "nothing is waited for")
					}
					require.Equal(t, before, f.calls, "a warm file costs the fleet nothing")
				}
			})
		}
	}
}

// TestLater: a gateway that requests a segment later gets it from the owner, and nothing from the
// origin.
func TestLater(t *testing.T) {
	for name, first := range map[string]int{"from the owner": 0, "from the second": 1} {
		bubble(t, name, func(t *testing.T) {
			o := newOrigin(testFile(1), 2*SegmentSize)
			f := newFleet()
			list := gateways(t, f, 3, Options{})
			requireWhole(t, o, get(context.Background(), list[first], o))
			r := get(context.Background(), list[2], o)
			requireWhole(t, o, r)
			require.Equal(t, FromPeer, r.from)
			require.EqualValues(t, 2, o.fetches.Load())
			require.Zero(t, o.stats.Load(), "the owner knows the version")
			require.EqualValues(t, 2, f.leadCalls, "the owner alone asks for leases")
		})
	}
	bubble(t, "evicted there", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		list := gateways(t, newFleet(), 2, Options{})
		requireWhole(t, o, get(context.Background(), list[0], o))
		synctest.Wait()
		list[0].purgeTiers(tier.MatchFile(o.file))
		requireWhole(t, o, get(context.Background(), list[1], o))
		require.EqualValues(t, 2, o.fetches.Load())
	})
}

// TestTakeOver: a gateway that has become the owner requests a segment from the next in rank, which
// was the owner before.
func TestTakeOver(t *testing.T) {
	for name, age := range map[string]time.Duration{"fresh": 0, "expired": time.Hour} {
		bubble(t, name, func(t *testing.T) {
			o := newOrigin(testFile(1), SegmentSize+5)
			f := newFleet()
			list := gateways(t, f, 3, Options{})
			f.do(func() { f.names = []string{"b", "c"} })
			requireWhole(t, o, get(context.Background(), list[1], o))
			synctest.Wait()
			time.Sleep(age)
			f.do(func() { f.names = []string{"a", "b", "c"} })
			r := get(context.Background(), list[2], o)
			requireWhole(t, o, r)
			require.EqualValues(t, 2, o.fetches.Load(), "no download of what a gateway has")
			require.Equal(t, age > 0, o.stats.Load() > 0, "what has expired is confirmed")
			synctest.Wait()
			require.EqualValues(t, 2, list[0].Stats().Memory.Entries, "the new owner has it")
		})
	}
	bubble(t, "another version", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		o.v.Immutable = false
		f := newFleet()
		list := gateways(t, f, 2, Options{})
		f.do(func() { f.names = []string{"b"} })
		requireWhole(t, o, get(context.Background(), list[1], o))
		o.set(func() {
			o.content = cachetest.Content("new", 1500)
			o.v.Size, o.v.ModTime = 1500, o.v.ModTime+1e9
		})
		time.Sleep(5 * second)
		f.do(func() { f.names = []string{"a", "b"} })
		requireWhole(t, o, get(context.Background(), list[0], o))
		require.EqualValues(t, 2, o.fetches.Load())
	})
}

// TestOwnerAway: while the owner cannot be reached, the next in rank fetches for all gateways. It
// does not request the lease as the first in rank.
func TestOwnerAway(t *testing.T) {
	bubble(t, "cut off", func(t *testing.T) {
		o := newOrigin(testFile(1), 1<<20)
		o.first, o.whole = second/2, second
		f := newFleet()
		list := gateways(t, f, 4, Options{})
		f.cut["a"] = true
		for _, r := range manyClients(list[1:], o, 30) {
			requireWhole(t, o, r)
		}
		require.EqualValues(t, 1, o.fetches.Load())
	})
	bubble(t, "the second in rank fetches", func(t *testing.T) {
		o := newOrigin(testFile(1), 1<<20)
		f := newFleet()
		list := gateways(t, f, 4, Options{})
		f.cut["a"] = true
		for _, r := range manyClients(list[2:3], o, 10) {
			requireWhole(t, o, r)
		}
		_, _, known := list[1].Meta(o.file)
		require.True(t, known, "it was asked")
		require.Empty(t, f.firstLed)
		f.cut["a"] = false
		requireWhole(t, o, get(context.Background(), list[0], o))
		o = newOrigin(testFile(2), 1000)
		requireWhole(t, o, get(context.Background(), list[0], o))
		require.Equal(t, map[string]bool{"a": true}, f.firstLed)
	})
}

// otherRank is a member whose list of gateways differs from the lists of the others.
type otherRank struct {
	*member
	names []string
}

func (r *otherRank) Rank(string, int) []string { return r.names }

// TestDifferentRanks: gateways whose lists differ do not wait for each other in a circle, and make
// one download.
func TestDifferentRanks(t *testing.T) {
	for _, hint := range []int64{0, NoHint} {
		bubble(t, fmt.Sprint(hint), func(t *testing.T) {
			o := newOrigin(testFile(1), 1<<20)
			o.first, o.whole = second/2, second
			f := newFleet()
			var list []*Cache
			for name, names := range map[string][]string{"a": {"b", "c", ""}, "b": {"c", "a", ""},
				"c": {"a", "b", ""}} {
				c := newCache(t, Options{Fleet: &otherRank{&member{f: f, name: name}, names},
					Source: func(string, string) (Source, error) { return o, nil }})
				f.caches[name] = c
				list = append(list, c)
			}
			var wg sync.WaitGroup
			for i := range 30 {
				wg.Go(func() {
					_, err := list[i%3].Get(context.Background(), o.file, o, GetOptions{Hint: hint})
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for _, r := range manyClients(list, o, 30) {
				requireWhole(t, o, r)
				require.Less(t, r.total, 10*second)
			}
			require.EqualValues(t, 1, o.fetches.Load())
			require.LessOrEqual(t, o.stats.Load(), int64(1))
		})
	}
}

// TestNoPeers: gateways that cannot reach each other fetch a file one after the other, under the
// lease.
func TestNoPeers(t *testing.T) {
	bubble(t, "no peers", func(t *testing.T) {
		o := newOrigin(testFile(1), 1<<20)
		o.first, o.whole = second, second
		f := newFleet()
		f.noPeers = true
		list := gateways(t, f, 3, Options{})
		f.cut["a"], f.cut["b"], f.cut["c"] = true, true, true
		for _, r := range manyClients(list, o, 30) {
			requireWhole(t, o, r)
		}
		require.EqualValues(t, 3, o.fetches.Load())
		require.EqualValues(t, 1, o.most.Load(), "one at a time")
	})
}

// TestLeaderDies: when the leader is killed, another gateway continues at the first missing byte as
// soon as the lease has expired. The clients of the other gateways notice only a pause.
func TestLeaderDies(t *testing.T) {
	bubble(t, "kill -9", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.first, o.whole = second/2, 4*second
		f := newFleet()
		list := gateways(t, f, 3, Options{})
		killed := make(chan struct{})
		leader := make(chan result, 1)
		go func() {
			leader <- get(context.Background(), list[0], o)
		}()
		synctest.Wait()
		time.AfterFunc(2*second, func() { f.kill("a"); close(killed) })
		for _, r := range manyClients(list[1:], o, 30) {
			requireWhole(t, o, r)
			require.Less(t, r.total, 2*second+f.ttl+5*second)
		}
		<-killed
		r := <-leader
		require.ErrorIs(t, r.err, ErrClosed)
		requireHonest(t, o, r)
		require.EqualValues(t, 2, o.fetches.Load())
		require.LessOrEqual(t, o.served.Load(), int64(SegmentSize)*105/100)
	})
}

// TestLostLease: a segment that was fetched under a lost lease is served to the waiting requests,
// and not stored.
func TestLostLease(t *testing.T) {
	bubble(t, "told", func(t *testing.T) {
		o := newOrigin(testFile(1), 1<<20)
		o.first, o.whole = second, 4*second
		f := newFleet()
		c := gateways(t, f, 1, Options{})[0]
		time.AfterFunc(3*second/2, func() { f.expire("a") })
		requireWhole(t, o, get(context.Background(), c, o))
		synctest.Wait()
		require.Zero(t, c.Stats().Memory.Entries)
		requireWhole(t, o, get(context.Background(), c, o))
		synctest.Wait()
		require.EqualValues(t, 2, o.fetches.Load())
		require.NotZero(t, c.Stats().Memory.Entries)
	})
}

// TestFleetDown: without leases the owner still fetches for all, and the concurrent fetches from
// one source are limited. No client gets an error.
func TestFleetDown(t *testing.T) {
	bubble(t, "from the beginning", func(t *testing.T) {
		o := newOrigin(testFile(1), 1<<20)
		o.first, o.whole = second/2, second
		f := newFleet()
		list := gateways(t, f, 3, Options{})
		f.down = true
		for _, r := range manyClients(list, o, 40) {
			requireWhole(t, o, r)
			require.LessOrEqual(t, r.first, o.first+o.whole/64+200*time.Millisecond)
		}
		require.EqualValues(t, 1, o.fetches.Load(), "the owner's")
		f.do(func() { f.down = false })
		other := newOrigin(testFile(2), 1<<20)
		for _, r := range manyClients(list, other, 40) {
			requireWhole(t, other, r)
		}
		require.EqualValues(t, 1, other.fetches.Load(), "it comes back by itself")
	})
	bubble(t, "in the middle", func(t *testing.T) {
		o := newOrigin(testFile(1), 3*SegmentSize)
		o.first, o.whole = second/2, 4*second
		f := newFleet()
		list := gateways(t, f, 2, Options{})
		time.AfterFunc(2*second, func() { f.do(func() { f.down = true }) })
		for _, r := range manyClients(list, o, 20) {
			requireWhole(t, o, r)
		}
		require.LessOrEqual(t, o.fetches.Load(), int64(6), "at most twice")
	})
	bubble(t, "limit", func(t *testing.T) {
		f := newFleet()
		f.down = true
		c := gateways(t, f, 1, Options{SourceLimit: 3})[0]
		done := make(chan result)
		for i := range 20 {
			o := newOrigin(testFile(i), 1000)
			o.first, o.whole = second, 64*second
			go func() { done <- get(context.Background(), c, o) }()
		}
		began := time.Now()
		for range 20 {
			require.NoError(t, (<-done).err)
		}
		require.GreaterOrEqual(t, time.Since(began), 7*2*second, "three at a time")
		synctest.Wait()
		slots, _ := c.sourceSlots.Peek("storage")
		require.True(t, slots.TryAcquire(3), "all were given back")
	})
}

// TestWait: a gateway waits at most Options.Wait for a lease whose holder is not known and does not
// release it.
func TestWait(t *testing.T) {
	for name, hint := range map[string]int64{"segment": 0, "question": NoHint} {
		bubble(t, name, func(t *testing.T) {
			o := newOrigin(testFile(1), 1000)
			f := newFleet()
			c := gateways(t, f, 1, Options{Wait: 20 * second})[0]
			f.noPeers = true
			key := o.file
			if hint == 0 {
				key = tier.KeyAt(o.file, 0).String()
			}
			_, release, err := (&member{f: f, name: "gone"}).AcquireLease(background, key, true)
			require.NoError(t, err)
			began := time.Now()
			_, err = c.Get(background, o.file, o, GetOptions{Hint: hint})
			require.NoError(t, err)
			require.InDelta(t, 20, time.Since(began).Seconds(), 1)
			release()
		})
	}
}

// TestHeads: many requests without a body, at all gateways, cause one request to the origin.
func TestHeads(t *testing.T) {
	bubble(t, "cold", func(t *testing.T) {
		o := newOrigin(testFile(1), 5000)
		o.first = second
		list := gateways(t, newFleet(), 3, Options{})
		errs := make(chan error)
		for i := range 60 {
			go func() {
				e, err := list[i%3].Get(context.Background(), o.file, o, GetOptions{Hint: NoHint})
				if err == nil && e.Version != o.v {
					err = fmt.Errorf("version %v", e.Version)
				}
				errs <- err
			}()
		}
		for range 60 {
			require.NoError(t, <-errs)
		}
		require.EqualValues(t, 1, o.stats.Load())
		require.Zero(t, o.fetches.Load())
	})
}

// slowLead is a member that calls meanwhile before it takes a lease.
type slowLead struct {
	*member
	meanwhile func(key string)
}

func (s *slowLead) AcquireLease(ctx context.Context, key string, first bool) (context.Context, func(), error) {
	s.meanwhile(key)
	return s.member.AcquireLease(ctx, key, first)
}

// TestLookAgain: an entry that was stored while the lease was being taken is not fetched.
func TestLookAgain(t *testing.T) {
	for name, hint := range map[string]int64{"known file": NoHint, "unknown file": 0} {
		bubble(t, name, func(t *testing.T) {
			o := newOrigin(testFile(1), 1000)
			fleet := &slowLead{member: &member{f: newFleet(), name: "a"}, meanwhile: func(string) {}}
			c := newCache(t, Options{Fleet: fleet})
			if hint == NoHint {
				_, err := lookup(c, o)
				require.NoError(t, err)
			}
			fleet.meanwhile = func(string) {
				c.metas.put(o.file, Meta{Version: o.v, Checked: time.Now()})
				require.True(t, c.memory.Put(cachetest.Segment(o.file, 0, o.content)))
			}
			requireWhole(t, o, get(context.Background(), c, o))
			require.Zero(t, o.fetches.Load())
		})
	}
}
