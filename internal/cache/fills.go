package cache

import (
	"context"
	"errors"
	"slices"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// errAbandoned ends a fill without readers.
var errAbandoned = errors.New("nothing waits for it")

// Bounds of fills that go on without readers, since others may come.
const (
	maxDetached  = 32               // fills
	detachedTime = 10 * time.Second // for a segment of 4 MiB, a source of 3.4 Mbit/s is fast enough
)

// join returns the fill for an entry, which it starts if there is none. The caller is a reader
// until removeReader. A fill for another version goes on for its own readers.
func (c *Cache) join(key SegmentKey, src Source, o fillOptions, readers int) *fill {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range [...]*fill{o.mine[0], o.mine[1], c.fills[key]} {
		if f != nil && f.key == key && c.addReader(f, o.want, readers) {
			return f
		}
	}
	return c.start(key, src, o, readers)
}

// joinMeta returns the fill that fetches the metadata of a file, which it starts if there is none.
// The caller is a reader until removeReader. For an unknown file that is the fill for the segment
// that the request needs: metadata comes with it.
func (c *Cache) joinMeta(file string, src Source, o GetOptions, freshness freshness) *fill {
	metaKey := SegmentKey{File: file, Index: MetaOnly}
	key := metaKey
	if at := c.entryAt(file, max(0, o.Hint)); freshness == unknown && o.Hint >= 0 {
		if _, held := c.holds(at); !held {
			key = at
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.fills[metaKey]; f != nil && c.addReader(f, nil, 0) {
		return f
	}
	if c.fills[key] != nil { // for an expected version
		key = metaKey
	}
	f := c.start(key, src, fillOptions{maxAge: o.MaxAge, forPeer: o.forPeer, fetchesMeta: true,
		early: freshness == early}, 0)
	c.fills[f.metaKey()] = f
	return f
}

// start starts a fill with one waiting caller. mu is held.
func (c *Cache) start(key SegmentKey, src Source, o fillOptions, readers int) *fill {
	f := c.newFill(key, src, o)
	f.readers, f.waiting = readers, 1
	if c.life.Err() != nil {
		f.err, f.ended = ErrClosed, true
		return f
	}
	if other := c.fills[f.key]; other != nil { // invalidate finds only fills in the map
		other.update(other.invalidate)
	}
	c.fills[f.key] = f
	if fdfs.NamesSource(key.File) {
		c.bySource.Store(true)
	}
	c.n.fills.Add(1) // before the goroutine: a count of 0 means that none is about to begin
	select {
	case c.next <- f:
	default:
		c.tasks.Go(func() { c.loadEach(f) })
	}
	return f
}

// loaderTime bounds the wait of a goroutine for its next fill, which finds its stack grown.
const loaderTime = time.Second

// loadEach loads a fill, and then others.
func (c *Cache) loadEach(f *fill) {
	wait := time.NewTimer(loaderTime)
	defer wait.Stop()
	for {
		c.load(f)
		c.n.fills.Add(-1)
		wait.Reset(loaderTime)
		select {
		case f = <-c.next:
		case <-wait.C:
			return
		case <-c.life.Done():
			return
		}
	}
}

// publishMeta ends the waiting for metadata: from now on requests find it in the metaCache.
func (c *Cache) publishMeta(f *fill) {
	if !f.fetchesMeta {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fills[f.metaKey()] == f {
		delete(c.fills, f.metaKey())
	}
}

// finish removes a fill that is over from the map.
func (c *Cache) finish(f *fill) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	c.removeLocked(f)
	if f.err == nil && !f.ended { // once for each fill
		c.n.countCoalesced(f.readers)
	}
	f.ended = true
	c.reattach(f)
	f.end(nil)
}

// removeLocked removes a fill from the map. mu is held.
func (c *Cache) removeLocked(f *fill) {
	for _, key := range [...]SegmentKey{f.key, f.metaKey()} {
		if c.fills[key] == f {
			delete(c.fills, key)
		}
	}
}

// invalidate lets the fills of the files that match go on for their present readers only: nothing
// of them is stored. v is the version of these fills, nil is any.
func (c *Cache) invalidate(m Match, v *Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.fills {
		if !m.Matches(f.key.File) {
			continue
		}
		f.mu.Lock()
		if v == nil || f.hasVersion && f.version == *v {
			f.invalidate()
			c.removeLocked(f)
		}
		f.mu.Unlock()
	}
}

// addReader makes the caller a reader of a fill, unless that has ended, and is not kept, or is for
// another version than v; nil is any. mu is held.
func (c *Cache) addReader(f *fill, v *Version, readers int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isReadableLocked(v) {
		return false
	}
	f.readers += readers
	f.waiting++
	c.reattach(f)
	return true
}

// removeReader ends the waiting of a request with ctx. A fill without readers is abandoned, unless
// its source has begun to respond or the deadline of ctx has passed: the next request may need it.
// Fills without readers last for detachedTime at most, and streams detach maxDetached at most. The
// last stream frees the bytes of a fill that has ended.
func (c *Cache) removeReader(ctx context.Context, f *fill, isStream bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.background = f.background || ctx.Err() == context.DeadlineExceeded
	f.waiting--
	if isStream && f.waiting == 0 && f.ended {
		f.chunks, f.tail = nil, nil
		c.kept = slices.DeleteFunc(c.kept, func(other *fill) bool { return other == f })
	}
	switch {
	case f.waiting > 0 || f.ended || f.inTier || f.err != nil || f.background:
		return
	case (f.hasMeta || f.have > 0) && (!isStream || c.detached < maxDetached):
		if f.detached = isStream; isStream {
			c.detached++
		}
		f.detachedTimer = time.AfterFunc(detachedTime, func() { c.abandon(f) })
		return
	}
	c.abandonLocked(f)
}

// abandon ends a fill that had no readers during detachedTime.
func (c *Cache) abandon(f *fill) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.detachedTimer != nil && !f.ended && !f.inTier && f.err == nil && !f.background {
		c.reattach(f)
		c.abandonLocked(f)
	}
}

// abandonLocked ends a fill without readers. Both mutexes are held.
func (c *Cache) abandonLocked(f *fill) {
	f.ended = true
	if f.fetchesMeta {
		c.removeLocked(f) // the next request starts another fill
		f.invalidate()    // a purge finds only fills in the map
	}
	f.end(errAbandoned)
}

// reattach stops the timer of a fill that was detached, and its counting. Both mutexes are held.
func (c *Cache) reattach(f *fill) {
	if f.detachedTimer != nil {
		f.detachedTimer.Stop()
		f.detachedTimer = nil
	}
	if f.detached {
		f.detached = false
		c.detached--
	}
}
