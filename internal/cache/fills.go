package cache

import (
	"context"
	"errors"
	"slices"
	"time"

	"fastdfs-gateway/internal/cache/tier"
)

// errAbandoned ends a fill without readers.
var errAbandoned = errors.New("nothing waits for it")

// Bounds of fills that continue without owners, since the next request may need them.
const (
	maxLingering = 32               // fills that streams leave behind
	lingerTime   = 10 * time.Second // for a segment of 4 MiB, a source of 3.4 Mbit/s is fast enough
)

// join returns the fill for an entry, and starts one if there is none. The caller is an owner until
// removeOwner. A fill for another version continues for its readers.
func (c *Cache) join(key SegmentKey, src Source, o fillOptions, streams int) *fill {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range [...]*fill{o.awaited[0], o.awaited[1], c.fills[key]} {
		if f != nil && f.key == key && c.addOwner(f, o.want, streams) {
			return f
		}
	}
	return c.startFill(key, src, o, streams)
}

// joinMeta returns the fill that fetches the metadata of a file, and starts one if there is none.
// The caller is an owner until removeOwner. For an unknown file the fill is that of the segment
// which the request needs: the metadata comes with the segment. That of a variant comes only so.
func (c *Cache) joinMeta(file string, src Source, o GetOptions, freshness freshness) *fill {
	metaKey := SegmentKey{File: file, Index: MetaOnly}
	key := metaKey
	if at := c.entryAt(file, max(0, o.Hint)); freshness == unknown && (o.Hint >= 0 || tier.IsVariant(file)) {
		if _, held := c.holds(at); !held {
			key = at
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.fills[metaKey]; f != nil && c.addOwner(f, nil, 0) {
		return f
	}
	if c.fills[key] != nil { // for an expected version
		key = metaKey
	}
	f := c.startFill(key, src, fillOptions{maxAge: o.MaxAge, forPeer: o.forPeer, fetchesMeta: true}, 0)
	c.fills[f.metaKey()] = f
	return f
}

// startFill starts a fill with one owner. mu is held.
func (c *Cache) startFill(key SegmentKey, src Source, o fillOptions, streams int) *fill {
	f := c.newFill(key, src, o)
	f.streams, f.owners = streams, 1
	if c.life.Err() != nil {
		f.err, f.state = ErrClosed, failed
		return f
	}
	if other := c.fills[f.key]; other != nil { // invalidate finds only fills in the map
		other.mu.Lock()
		other.invalidate()
		other.mu.Unlock()
	}
	c.fills[f.key] = f
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

// transition changes the state of a fill, and all that follows from it. From kept and done a fill
// never fetches again. Both mutexes are held.
func (c *Cache) transition(f *fill, to fillState) {
	from := f.state
	f.state = to
	if f.linger != nil {
		f.linger.Stop()
		f.linger = nil
	}
	if from == lingering {
		c.lingering--
	}
	if from == kept {
		c.keptFills = slices.DeleteFunc(c.keptFills, func(other *fill) bool { return other == f })
	}
	switch {
	case to == lingering:
		c.lingering++
	case to == abandoned:
		if f.fetchesMeta {
			c.removeLocked(f) // the next request starts another fill
			f.invalidate()    // a purge finds only fills in the map
		}
		f.endFetch(errAbandoned)
	case to.hasEnded():
		c.removeLocked(f) // new requests look in the tiers
		f.endFetch(nil)
		if to != failed && from.isFetching() {
			c.n.countCoalesced(f.streams)
		}
	}
	if to == kept {
		c.keptFills = append(c.keptFills, f)
	}
	if to == done {
		f.freeBuffersLocked(from != kept)
	}
	if to == lingering || to == kept {
		f.linger = time.AfterFunc(lingerTime, func() { c.endLingering(f) })
	}
	f.notifyLocked()
}

// endLingering abandons a fill that had no owners during lingerTime, or frees its bytes.
func (c *Cache) endLingering(f *fill) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.owners > 0:
	case f.state == lingering:
		c.transition(f, abandoned)
	case f.state == kept:
		c.transition(f, done)
	}
}

// endFill ends a fill with the outcome of its fetch, unless it has ended before.
func (c *Cache) endFill(f *fill, outcome fillState, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.state.hasEnded() {
		f.err = err
		c.transition(f, outcome)
	}
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

// addOwner makes the caller an owner of a fill, and reports whether it could: not if the fill has
// ended and keeps no bytes, or has another version than v; nil is any version. mu is held.
func (c *Cache) addOwner(f *fill, v *Version, streams int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isReadableLocked(v) {
		return false
	}
	f.streams += streams
	f.owners++
	if f.state == lingering {
		c.transition(f, wanted)
	}
	return true
}

// removeOwner ends the wait of a request, or of a stream. A fetch without owners ends, with two
// exceptions: with goesOn it goes on to its end, and a fetch whose source has begun to respond
// lingers, unless too many do. Kept bytes are freed when the last stream leaves.
func (c *Cache) removeOwner(f *fill, isStream, goesOn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owners--
	if f.state == wanted && goesOn {
		c.transition(f, inBackground)
	}
	switch {
	case f.owners > 0:
	case f.state == kept && isStream:
		c.transition(f, done)
	case f.state != wanted:
	case (f.hasMeta || f.have > 0) && (!isStream || c.lingering < maxLingering):
		c.transition(f, lingering)
	default:
		c.transition(f, abandoned)
	}
}

// isOverdue reports whether a request has ended by its deadline. Its fills go on in the background.
func isOverdue(ctx context.Context) bool { return ctx.Err() == context.DeadlineExceeded }
