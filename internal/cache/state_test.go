package cache

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/cachetest"
	"fastdfs-gateway/internal/testing/eventually"
)

var background = context.Background()

// lookup requests the metadata of a file, as a HEAD does.
func lookup(c *Cache, o *origin) (Entry, error) {
	return c.Get(background, o.file, o, GetOptions{Hint: NoHint})
}

// TestExpired: an expired entry is served at once while one request revalidates it.
func TestExpired(t *testing.T) {
	bubble(t, "origin lives", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		o.first = second
		c := newCache(t, Options{})
		requireWhole(t, o, get(background, c, o))
		time.Sleep(8 * time.Minute)
		e, err := lookup(c, o)
		require.NoError(t, err)
		require.Equal(t, Fresh, e.State)
		require.InDelta(t, 8*60, time.Since(e.Meta.Checked).Seconds(), 3)
		time.Sleep(3 * time.Minute)
		began := time.Now()
		for range 100 {
			e, err = lookup(c, o)
			require.NoError(t, err)
			require.Equal(t, Stale, e.State)
		}
		require.Zero(t, time.Since(began), "no request waits")
		time.Sleep(2 * second)
		require.EqualValues(t, 1, o.stats.Load(), "one asks")
		e, err = lookup(c, o)
		require.NoError(t, err)
		require.Equal(t, Fresh, e.State)
		r := get(background, c, o)
		requireWhole(t, o, r)
		require.Equal(t, FromMemory, r.from)
		require.EqualValues(t, 1, o.fetches.Load(), "content is not downloaded again")
		require.EqualValues(t, 100, c.Stats().StaleServed)
	})
}

// TestOriginDead: while the origin fails, an expired entry is served until stale_if_error is over.
// After the time of stale-while-revalidate, only the first request waits for the revalidation.
func TestOriginDead(t *testing.T) {
	bubble(t, "origin dead", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		c := newCache(t, Options{})
		requireWhole(t, o, get(background, c, o))
		o.set(func() { o.down = true })
		o.first = second
		time.Sleep(30 * time.Minute) // stale while revalidate
		for range 10 {
			began := time.Now()
			requireWhole(t, o, get(background, c, o))
			require.Zero(t, time.Since(began))
		}
		time.Sleep(10 * time.Hour) // stale if error
		before := o.stats.Load()
		began := time.Now()
		requireWhole(t, o, get(background, c, o))
		require.Equal(t, second, time.Since(began), "the first one waits until asking has failed")
		for range 10 {
			requireWhole(t, o, get(background, c, o))
		}
		require.Equal(t, second, time.Since(began), "the others do not")
		require.Equal(t, before+1, o.stats.Load())
		time.Sleep(14 * time.Hour)
		_, err := lookup(c, o)
		require.ErrorIs(t, err, errOrigin, "too old for anything")
	})
}

// TestJitter: metadata that was fetched at one moment expires at different times, at most a tenth
// of the TTL early.
func TestJitter(t *testing.T) {
	r := newMetaCache(&Options{TTL: 10 * time.Minute, NegativeTTL: 5 * second}, 1<<20)
	now := time.Now()
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		ttl := r.expiry(Meta{Version: Version{Immutable: true}, Checked: now}).Sub(now)
		least, most = min(least, ttl), max(most, ttl)
	}
	require.GreaterOrEqual(t, least, 9*time.Minute)
	require.Less(t, least, 9*time.Minute+30*second)
	require.LessOrEqual(t, most, 10*time.Minute)
	require.Greater(t, most, 9*time.Minute+30*second)
}

// TestMutable: metadata of a file that can change is at most MutableTTL old. The fleet revalidates
// it once, and does not download unchanged content again.
func TestMutable(t *testing.T) {
	bubble(t, "changes", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		o.v.Immutable = false
		o.first = 10 * time.Millisecond
		list := gateways(t, newFleet(), 3, Options{})
		for _, c := range list {
			requireWhole(t, o, get(background, c, o))
		}
		for range 5 {
			time.Sleep(2 * second)
			for _, r := range manyClients(list, o, 30) {
				requireWhole(t, o, r)
			}
		}
		require.EqualValues(t, 5, o.stats.Load(), "one question in the fleet each time")
		require.EqualValues(t, 1, o.fetches.Load(), "unchanged content is not downloaded again")
		o.set(func() {
			o.content = cachetest.Content("new", 1500)
			o.v.Size, o.v.ModTime = 1500, o.v.ModTime+1e9
		})
		time.Sleep(second)
		for _, r := range manyClients(list, o, 30) {
			requireWhole(t, o, r)
		}
		require.Zero(t, list[0].Stats().StaleServed, "no request gets what has expired")
	})
	bubble(t, "hits meanwhile", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		o.v.Immutable = false
		c := newCache(t, Options{})
		requireWhole(t, o, get(background, c, o))
		time.Sleep(800 * time.Millisecond)
		_, ok := hit(c, o)
		require.True(t, ok)
		time.Sleep(200 * time.Millisecond)
		_, ok = hit(c, o)
		require.False(t, ok)
	})
	bubble(t, "origin dead", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		o.v.Immutable = false
		c := newCache(t, Options{})
		requireWhole(t, o, get(background, c, o))
		o.set(func() { o.down = true })
		time.Sleep(time.Hour)
		for range 10 {
			requireWhole(t, o, get(background, c, o)) // stale if error
		}
		o.set(func() { o.content, o.down = nil, false })
		time.Sleep(2 * time.Minute)
		require.ErrorIs(t, get(background, c, o).err, ErrNotFound)
	})
}

// TestMaxAge: MaxAge bounds the age of the metadata that a request gets, while a storage replies.
func TestMaxAge(t *testing.T) {
	bubble(t, "immutable", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		c := newCache(t, Options{})
		requireWhole(t, o, get(background, c, o))
		ask := GetOptions{Hint: NoHint, MaxAge: second}
		for range 3 {
			time.Sleep(2 * second)
			for range 10 {
				e, err := c.Get(background, o.file, o, ask)
				require.NoError(t, err)
				require.Less(t, time.Since(e.Meta.Checked), second)
			}
		}
		require.EqualValues(t, 3, o.stats.Load())
		o.set(func() { o.down = true })
		time.Sleep(2 * second)
		e, err := c.Get(background, o.file, o, ask)
		require.NoError(t, err)
		require.Equal(t, Stale, e.State, "while no storage replies")
		o.set(func() { o.down, o.content = false, nil })
		time.Sleep(2 * time.Minute)
		_, err = c.Get(background, o.file, o, ask)
		require.ErrorIs(t, err, ErrNotFound)
	})
}

func TestNegative(t *testing.T) {
	bubble(t, "old file", func(t *testing.T) {
		o := noFile(testFile(1))
		f := newFleet()
		list := gateways(t, f, 2, Options{})
		for i := range 20 {
			require.ErrorIs(t, get(background, list[i%2], o).err, ErrNotFound)
		}
		require.EqualValues(t, 1, o.fetches.Load()+o.stats.Load(), "the fleet knows")
		o.content = []byte("x")
		o.v = cachetest.Version(o.content)
		time.Sleep(6 * second)
		requireWhole(t, o, get(background, list[0], o))
	})
	bubble(t, "young file", func(t *testing.T) {
		o := noFile(testFile(1))
		o.negative = -1
		list := gateways(t, newFleet(), 2, Options{})
		for i, hint := range []int64{0, NoHint} {
			for range 3 {
				_, err := list[i].Get(background, o.file, o, GetOptions{Hint: hint})
				require.ErrorIs(t, err, ErrNotFound)
			}
		}
		require.EqualValues(t, 6, o.fetches.Load()+o.stats.Load(), "it may be over at any moment")
		o.negative = second
		require.ErrorIs(t, get(background, list[1], o).err, ErrNotFound)
		o.content = []byte("x")
		o.v = cachetest.Version(o.content)
		require.ErrorIs(t, get(background, list[0], o).err, ErrNotFound, "for a second")
		require.ErrorIs(t, get(background, list[1], o).err, ErrNotFound, "for a second")
		time.Sleep(second)
		requireWhole(t, o, get(background, list[0], o))
		requireWhole(t, o, get(background, list[1], o))
	})
	bubble(t, "purge", func(t *testing.T) {
		o := noFile(testFile(1))
		c := newCache(t, Options{})
		require.ErrorIs(t, get(background, c, o).err, ErrNotFound)
		o.content = []byte("x")
		o.v = cachetest.Version(o.content)
		require.Equal(t, 1, c.Purge(tier.MatchFolder("group1/M00")))
		requireWhole(t, o, get(background, c, o))
	})
}

// TestRestartWithDisk: the next process requests the metadata of a file on its disk once, and
// downloads nothing.
func TestRestartWithDisk(t *testing.T) {
	path := t.TempDir()
	o := newOrigin(testFile(1), 2*SegmentSize+77)
	c := newCacheOnDisk(t, path, Options{})
	eventually.True(t, c.disk.Listed)
	requireWhole(t, o, get(background, c, o))
	eventually.True(t, func() bool { return c.Stats().Disk.Entries == 3 })
	require.NoError(t, c.Close())
	ready := make(chan struct{})
	c = newCacheOnDisk(t, path, Options{DiskReady: ready})
	_, held := c.holdsSegment(tier.KeyAt(o.file, 0))
	require.False(t, held, "it may not be used yet")
	close(ready)
	r := get(background, c, o)
	requireWhole(t, o, r)
	require.Equal(t, FromDisk, r.from)
	require.EqualValues(t, 3, o.fetches.Load())
	require.EqualValues(t, 1, o.stats.Load())
	eventually.True(t, c.disk.Listed)
	require.Positive(t, c.Purge(tier.MatchAll))
	require.Zero(t, c.Stats().Disk.Entries)
	requireWhole(t, o, get(background, c, o))
	require.EqualValues(t, 6, o.fetches.Load())
}

// TestRecordsBudget: the metadata of files stays within its part of the memory.
func TestRecordsBudget(t *testing.T) {
	r := newMetaCache(&Options{TTL: time.Minute}, 100<<10)
	for i := range 5000 {
		r.put(testFile(i), Meta{Version: Version{Size: int64(i) << 8, Immutable: true}, Checked: time.Now()})
		require.LessOrEqual(t, r.used, r.max)
	}
	require.Greater(t, r.used, r.max*9/10)
	require.Equal(t, len(r.records), r.purge(tier.MatchFolder("group1/M00")))
	require.Zero(t, r.used)
}

func TestClose(t *testing.T) {
	bubble(t, "while fetching", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		o.whole = time.Hour
		c := newCache(t, Options{})
		done := make(chan result)
		go func() { done <- get(background, c, o) }()
		time.Sleep(second)
		require.NoError(t, c.Close())
		r := <-done
		require.ErrorIs(t, r.err, ErrClosed)
		requireHonest(t, o, r)
		require.ErrorIs(t, get(background, c, newOrigin(testFile(2), 5)).err, ErrClosed)
	})
}

// TestAdjust: a running cache adopts new times, budgets and copies.
func TestAdjust(t *testing.T) {
	bubble(t, "smaller", func(t *testing.T) {
		c := newCache(t, Options{Memory: 64 << 20})
		for i := range 8 {
			o := newOrigin(testFile(i), SegmentSize)
			requireWhole(t, o, get(background, c, o))
		}
		synctest.Wait()
		require.Equal(t, 8, c.Stats().Memory.Entries)
		c.Adjust(Options{Memory: 16 << 20, TTL: second, Copies: 3})
		require.LessOrEqual(t, c.Stats().Memory.Bytes, int64(14<<20))
		require.EqualValues(t, 14<<20, c.Stats().Memory.Budget)
		require.Equal(t, 3, c.metas.o.Load().Copies)
		o := newOrigin(testFile(20), 1000)
		requireWhole(t, o, get(background, c, o))
		_, expires, ok := c.Meta(o.file)
		require.True(t, ok)
		require.LessOrEqual(t, time.Until(expires), second)
		c.Adjust(Options{Memory: 64 << 20})
		require.EqualValues(t, 56<<20, c.Stats().Memory.Budget)
	})
}
