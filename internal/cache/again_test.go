package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/cachetest"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// TestAgain: when a file has changed once, and many readers detect that at the same time, the
// second look-up of each succeeds.
func TestAgain(t *testing.T) {
	var second, first atomic.Int64
	for round := 0; round < 40 || first.Load() == 0 && round < 1000; round++ {
		o := newOrigin(testFile(1), 50_000)
		o.v.Immutable = false
		o.first = time.Duration(round%3) * 200 * time.Microsecond
		c := newCache(t, Options{})
		_, err := c.Get(background, o.file, o, GetOptions{Hint: NoHint})
		require.NoError(t, err)
		o.set(func() {
			o.content = cachetest.Content("new", 60_000)
			o.v = cachetest.Version(o.content)
			o.v.Immutable = false
			o.v.ModTime++
		})
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				for range i {
					runtime.Gosched()
				}
				r := get(background, c, o)
				if errors.Is(r.err, ErrChanged) {
					first.Add(1)
					if r = get(background, c, o); errors.Is(r.err, ErrChanged) {
						second.Add(1)
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, c.Close())
	}
	require.Positive(t, first.Load(), "no reader has met the change: this has shown nothing")
	require.Zero(t, second.Load())
}

// slowRelease is a fleet whose leases are released only after held is closed.
type slowRelease struct {
	alone
	held chan struct{}
}

// AcquireLease implements Fleet.
func (f slowRelease) AcquireLease(context.Context, string, bool) (context.Context, func(), error) {
	return context.Background(), func() { <-f.held }, nil
}

// TestEvictedBehind: a reader whose segment is evicted before its fill has ended does not spin
// between the tiers and the fill.
func TestEvictedBehind(t *testing.T) {
	o := newOrigin(testFile(1), SegmentSize)
	fleet := slowRelease{held: make(chan struct{})}
	c := newCache(t, Options{Fleet: fleet})
	e, err := c.Get(background, o.file, o, GetOptions{Hint: 0})
	require.NoError(t, err)
	s := c.Open(background, e, o, 0, e.Version.Size)
	defer func() { _ = s.Close() }()
	_, err = s.Next(1000)
	require.NoError(t, err)
	eventually.True(t, func() bool { v, ok := c.holdsSegment(tier.KeyAt(o.file, 0)); return ok && v == o.v })
	c.purgeTiers(tier.MatchFile(o.file)) // as an eviction would
	before := c.Stats().Misses
	time.AfterFunc(200*time.Millisecond, func() { close(fleet.held) })
	_, err = s.Next(1000)
	require.NoError(t, err)
	require.Less(t, c.Stats().Misses-before, uint64(20))
}

// TestBehindTheEnd: a request behind the end of a cold file does not make the file count as
// corrupted. The first reader gets the whole content.
func TestBehindTheEnd(t *testing.T) {
	plain := func(size int64) (*origin, Options) { return newOrigin(testFile(1), size), Options{} }
	for size, make := range map[int64]func(size int64) (*origin, Options){
		1000: plain, SegmentSize: plain, SegmentSize + 1: plain, 3*SegmentSize - 5: plain, 1001: newSlot,
	} {
		o, options := make(size)
		c := newCache(t, options)
		for behind := o.v.Segments(); behind < 2*o.v.Segments()+1; behind++ {
			e, err := c.Get(background, o.file, o, GetOptions{Hint: behind * SegmentSize})
			require.NoError(t, err)
			require.Equal(t, size, e.Version.Size)
			idle(t, c)
			require.Zero(t, o.rechecks.Load())
			requireWhole(t, o, get(background, c, o))
			idle(t, c)
			require.Zero(t, c.Stats().CRCErrors)
			c.Purge(tier.MatchFile(o.file))
		}
	}
}

// TestKnownMeanwhile: a fill fetches nothing if another request has stored metadata and content
// after the look-up of the request that starts the fill.
func TestKnownMeanwhile(t *testing.T) {
	for _, index := range []int64{0, MetaOnly} {
		bubble(t, fmt.Sprint(index), func(t *testing.T) {
			o := newOrigin(testFile(1), 1000)
			c := newCache(t, Options{})
			requireWhole(t, o, get(background, c, o))
			synctest.Wait()
			begin := func() (Meta, error) {
				c.mu.Lock()
				key := SegmentKey{File: o.file, Index: index}
				f := c.startFill(key, o, fillOptions{fetchesMeta: true, forPeer: true}, 0)
				c.mu.Unlock()
				defer c.removeOwner(f, false, false)
				if err := f.awaitLeader(background, nil); err != nil {
					return Meta{}, err
				}
				return f.awaitMeta(background)
			}
			m, err := begin()
			require.NoError(t, err)
			require.Equal(t, o.v, m.Version)
			c.metas.put(o.file, Meta{Gone: true, Checked: time.Now()})
			_, err = begin()
			require.ErrorIs(t, err, ErrNotFound)
			require.EqualValues(t, 1, o.fetches.Load())
			require.Zero(t, o.stats.Load())
		})
	}
}

// meanwhile is a context that calls do when a caller is about to wait for its end.
type meanwhile struct {
	context.Context
	do func()
}

// Done implements context.Context.
func (m meanwhile) Done() <-chan struct{} {
	m.do()
	return m.Context.Done()
}

// TestQuickFill: the result of a fill also counts if the fill has ended before a request waits for
// it.
func TestQuickFill(t *testing.T) {
	o := newOrigin(testFile(1), 1000)
	c := newCache(t, Options{})
	for range 50 { // a select with two ready cases takes either
		f := c.newFill(tier.KeyAt(o.file, 0), o, fillOptions{fetchesMeta: true})
		m, err := f.awaitMeta(meanwhile{background, func() {
			require.NoError(t, f.setMeta(Meta{Version: o.v}))
			c.endFill(f, done, nil)
		}})
		require.NoError(t, err)
		require.Equal(t, o.v, m.Version)

		f = c.newFill(tier.KeyAt(o.file, 0), o, fillOptions{fetchesMeta: true})
		_, err = f.awaitMeta(meanwhile{background, func() { c.endFill(f, failed, ErrNotFound) }})
		require.ErrorIs(t, err, ErrNotFound)

		f = c.newFill(tier.KeyAt(o.file, 0), o, fillOptions{fetchesMeta: true})
		_, err = f.awaitMeta(meanwhile{background, func() {
			require.NoError(t, f.setMeta(Meta{Version: o.v}))
			c.endFill(f, failed, ErrChanged)
		}})
		require.ErrorIs(t, err, ErrChanged, "what it was told is over")
	}
}
