package cache

import (
	"context"
	"errors"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// errAbandoned ends a fill without readers.
var errAbandoned = errors.New("nothing waits for it")

// Bounds of fills that continue without readers, since the next request may need them.
const (
	maxDetached  = 32               // fills
	detachedTime = 10 * time.Second // for a segment of 4 MiB, a source of 3.4 Mbit/s is fast enough
)

// join returns the fill for an entry, and starts one if there is none. The caller is a reader until
// removeReader. A fill for another version continues for its readers.
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

// joinMeta returns the fill that fetches the metadata of a file, and starts one if there is none.
// The caller is a reader until removeReader. For an unknown file the fill is that of the segment
// which the request needs: the metadata comes with the segment.
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
	f := c.start(key, src, fillOptions{maxAge: o.MaxAge, forPeer: o.forPeer, fetchesMeta: true}, 0)
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
	c.n.fills.Add(1) // before the goroutine starts: a count of 0 means that no fill is about to begin
	select {
	case c.next <- f:
	default:
		c.tasks.Go(func() { c.loadEach(f) })
	}
	return f
}

// loaderTime bounds the wait of a goroutine for its next fill, which then runs on a stack that has
// grown already.
const loaderTime = time.Second

// loadEach loads a fill, and then the fills from Cache.next.
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

// publishMeta ends the wait for metadata: from now on requests find it in the metaCache.
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

// finish ends a fill and removes it from the map.
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

// invalidate detaches the fills of the files that match from the cache: they continue for their
// present readers only, and nothing of them is stored. v is the version of these fills; nil is any
// version.
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

// addReader makes the caller a reader of a fill, and reports whether it could: not if the fill has
// failed, has ended and is not kept, or has another version than v; nil is any version. mu is held.
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

// removeReader ends the wait of a request with ctx. A fill without readers is abandoned, with two
// exceptions, since the next request may need it. A fill whose source has begun to respond
// continues for detachedTime; streams leave at most maxDetached such fills. A fill in the
// background continues to its end, as after the deadline of ctx. The last stream frees the bytes of
// a fill that has ended.
func (c *Cache) removeReader(ctx context.Context, f *fill, isStream bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.background = f.background || ctx.Err() == context.DeadlineExceeded
	f.waiting--
	if isStream {
		c.freeKept(f)
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

// reattach stops the timer of a detached fill, and no longer counts it. Both mutexes are held.
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
