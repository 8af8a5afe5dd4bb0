package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/storage/client/stall"
)

const (
	statTimeout = 30 * time.Second // of a request for size and time
	maxOwners   = 2                // gateways that are asked to fetch before this one does
)

// A source that breaks after at least goodProgress bytes is asked again as if it never had; after
// fewer, a fill asks maxBroken times.
const (
	goodProgress = 1 << 20
	maxBroken    = 3
)

// errAgain: something has changed, and the fill is to look again.
var errAgain = errors.New("look again")

// load is the goroutine of a fill. Like groupcache's load it is the whole path of a miss:
//
//	look up again -> ask the gateways that own the entry -> take the lease -> look up again ->
//	ask the next in rank for a copy -> fetch from the source -> check -> store
//
// Readers get bytes while they arrive.
func (c *Cache) load(f *fill) {
	if err := c.loadAndRetry(f); err != nil {
		c.loadFailed(f, err) // first: a reader that gets the error may ask again at once
		f.fail(err)
	}
	c.unreserve(f)
	c.finish(f)
}

// loadAndRetry ends when the entry is complete, the source has failed, or the file has changed.
// Failures of peers only make it look at other places. Bytes that have arrived are not fetched
// again.
func (c *Cache) loadAndRetry(f *fill) (err error) {
	defer panics.ToError(&err, "filling the cache")
	broken, waitUntil := 0, time.Now().Add(c.maxWait())
	for {
		before := f.received()
		err = c.loadOnce(f, time.Until(waitUntil))
		progress := f.received() - before
		switch {
		case err == nil:
			return nil
		case f.ctx.Err() != nil:
			return context.Cause(f.ctx)
		case errors.Is(err, errAgain):
			if progress > 0 {
				waitUntil = time.Now().Add(c.maxWait())
			}
		case progress == 0, errors.Is(err, ErrNotFound), errors.Is(err, ErrChanged), errors.Is(err, ErrCorrupt),
			errors.Is(err, stall.ErrSlow):
			return err
		case progress >= goodProgress:
			broken = 1
		default:
			if broken++; broken == maxBroken {
				return err
			}
		}
		select { // so that it does not spin
		case <-time.After(5 * time.Millisecond):
		case <-f.ctx.Done():
		}
	}
}

// loadOnce goes the path once. waitBudget is how long the lease of another gateway may still be
// waited for.
func (c *Cache) loadOnce(f *fill, waitBudget time.Duration) error {
	if c.isStored(f) {
		return nil
	}
	owners, next, keep := c.rank(f)
	if c.wasCorrupted(f.key.File) { // other gateways may still have it
		owners, next = nil, ""
	}
	if !f.forPeer { // or else requests could go in a circle
		if err := c.loadFromPeers(f, owners, keep); !errors.Is(err, ErrNotHere) {
			return err
		}
	}
	lease, release, err := c.o.Fleet.AcquireLease(f.ctx, f.leaseKey())
	var held *Held
	switch {
	case errors.As(err, &held) && waitBudget > 0:
		return c.awaitHolder(f, held, keep, waitBudget)
	case f.ctx.Err() != nil:
		return context.Cause(f.ctx)
	case err != nil: // without leases, the load on the source is bounded here
		lease = context.Background()
		if release, err = c.awaitSlot(f); err != nil {
			return err
		}
	}
	defer release()
	if c.isStored(f) {
		return nil
	}
	f.setRole(leader)
	defer context.AfterFunc(lease, func() { f.setRole(waiter) })()
	err = ErrNotHere
	if next != "" {
		err = c.loadFromPeer(f, next, true)
	}
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrBusy) {
		err = c.loadFromSource(f, lease)
	}
	if err != nil {
		return err
	}
	// Also outside of the first Copies: none of these gave it, so that perhaps none keeps it.
	return c.complete(f, lease, true)
}

// awaitSlot waits until the source may be asked without a lease; for a bounded time, since fills
// that nothing waits for any more wait here too.
func (c *Cache) awaitSlot(f *fill) (release func(), err error) {
	name, slots := f.src.Name(), semaphore.NewWeighted(int64(c.o.SourceLimit))
	if known, ok, _ := c.sourceSlots.PeekOrAdd(name, slots); ok {
		slots = known
	}
	ctx, cancel := context.WithTimeout(f.ctx, c.maxWait())
	defer cancel()
	switch err := slots.Acquire(ctx, 1); {
	case err == nil:
		return func() { slots.Release(1) }, nil
	case f.ctx.Err() != nil:
		return nil, context.Cause(f.ctx)
	}
	return nil, fmt.Errorf("%w: too many other fetches from %q", ErrBusy, name)
}

// rank tells the gateways that own an entry rather than this one, the one behind this one, which
// may have been the owner, and whether this one is to keep the entry on disk.
func (c *Cache) rank(f *fill) (owners []string, next string, keep bool) {
	copies := int(c.copies.Load())
	n := max(copies, maxOwners) + 1
	ranked := c.o.Fleet.Rank(RankKey(f.key), n)
	self := slices.Index(ranked, "")
	switch {
	case len(ranked) == 0:
		return nil, "", true
	case self < 0:
		return ranked[:min(maxOwners, len(ranked))], "", copies == 0
	case self+1 < len(ranked) && f.key.Index != MetaOnly:
		next = ranked[self+1]
	}
	return ranked[:min(self, maxOwners)], next, copies == 0 || self < copies
}

// isStored ends a fill whose segment is in a tier.
func (c *Cache) isStored(f *fill) bool {
	v, known := f.expectedVersion()
	if !known || f.key.Index == MetaOnly {
		return false
	}
	for key := range segmentsOf(f.key, v) {
		view, ok := c.find(key, v, false)
		if !ok {
			return false
		}
		view.Release()
	}
	c.moveToTier(f)
	return true
}

// loadFromPeers asks other gateways one after the other; ErrNotHere when none of them gives the
// entry.
func (c *Cache) loadFromPeers(f *fill, peers []string, keep bool) error {
	for _, peer := range peers {
		f.setRole(waiter)
		before := f.received()
		err := c.loadFromPeer(f, peer, false)
		switch {
		case err == nil:
			return c.complete(f, context.Background(), keep)
		case f.ctx.Err() != nil, errors.Is(err, ErrNotFound), errors.Is(err, ErrBusy):
			return err
		case f.received() > before:
			return errAgain // perhaps another gateway leads by now
		case !errors.Is(err, ErrNotHere): // it has failed, and its source may fail for others too
			c.o.Logger.Info("cannot read from another gateway", "entry", f.leaseKey(), "gateway", peer, "err", err)
			return ErrNotHere
		}
	}
	return ErrNotHere
}

// awaitHolder asks the gateway that has the lease, if it can be reached, and where that gives
// nothing waits until the lease is free.
func (c *Cache) awaitHolder(f *fill, held *Held, keep bool, waitBudget time.Duration) error {
	f.setRole(waiter)
	if held.Holder != "" && !c.wasCorrupted(f.key.File) {
		if err := c.loadFromPeers(f, []string{held.Holder}, keep); !errors.Is(err, ErrNotHere) {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(f.ctx, waitBudget)
	defer cancel()
	_ = held.Wait(ctx) // AcquireLease tells the outcome
	return errAgain
}

// loadFromPeer gets what is missing from another gateway; copied, what that has stored.
func (c *Cache) loadFromPeer(f *fill, peer string, copied bool) error {
	r := PeerRequest{Key: f.key, Offset: f.received(), MaxAge: f.maxAge, Copy: copied, RequestedAs: requestedAs(f.src)}
	room := c.waiterRoom
	if copied {
		room = c.leaderRoom
	}
	v, known := f.expectedVersion()
	if known {
		r.Want = &v
		if err := c.reserve(f, room, v, c.maxWait()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	m, body, err := c.o.Fleet.Open(ctx, peer, r)
	if err != nil {
		if errors.Is(err, ErrNotFound) {
			c.storeMeta(f, m)
		}
		return err
	}
	closeBody := func() {
		if body != nil {
			_ = body.Close() // all that counts was read
		}
	}
	f.cameFrom(FromPeer)
	isFresh := known || c.metas.isFresh(m, time.Now(), f.maxAge)
	if isFresh && c.reserve(f, room, m.Version, 0) == nil {
		defer closeBody()
		defer func() { f.sentBy(nil, r.Offset) }() // the other gateway may have fetched it from any server
		defer func() { c.n.peerBytes.Add(uint64(f.received() - r.Offset)) }()
		return c.receive(f, m, body)
	}
	closeBody() // a body that is not read fills the connection to the peer, so it is asked for again
	if isFresh {
		err = c.setMeta(f, m)
	} else {
		err = c.confirm(f, m)
	}
	if err != nil || f.key.Index == MetaOnly {
		return err
	}
	return c.loadFromPeer(f, peer, copied)
}

// confirm asks the source for metadata that a peer knows and that has expired. While that fails it
// is used for as long as stale metadata is.
func (c *Cache) confirm(f *fill, m Meta) error {
	confirmed, err := c.stat(f, m.Version)
	switch {
	case err == nil:
		return c.setMeta(f, confirmed)
	case f.ctx.Err() == nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrChanged) &&
		c.metas.isUsable(m, time.Now()):
		err = c.setMeta(f, m)
		c.metas.failed(f.key.File, time.Now())
	}
	return err
}

// loadFromSource gets what is missing from the source. What is found out under a lease that was
// lost is not kept.
func (c *Cache) loadFromSource(f *fill, lease context.Context) error {
	if f.key.Index == MetaOnly {
		m, err := c.stat(f, Version{})
		switch {
		case err != nil:
			return err
		case lease.Err() != nil:
			return f.setMeta(m)
		}
		return c.setMeta(f, m)
	}
	v, known := f.expectedVersion()
	have, length := f.received(), int64(SegmentSize)
	if f.key.Index == Whole {
		length, _ = c.o.VerifyFirst(f.key.File)
	}
	var want *Version
	if known {
		want, length = &v, v.SegmentLength(f.key.Index)
		if err := c.reserve(f, c.leaderRoom, v, c.maxWait()); err != nil {
			return err
		}
	}
	if have >= length {
		return nil
	}
	f.cameFrom(FromOrigin)
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	began := time.Now()
	got, body, err := f.src.Fetch(ctx, want, start(f.key)+have, length-have)
	if err == nil {
		defer func() { _ = body.Close() }() // all that counts was read
		m := Meta{Version: got, Checked: time.Now(), Took: time.Since(began)}
		err = c.receive(f, m, body)
		f.sentBy(body, have)
	}
	if errors.Is(err, ErrNotFound) {
		c.storeGone(f)
	}
	return err
}

// stat asks the source for the metadata; ErrChanged if it is not of the version that is wanted,
// unless that is the zero one.
func (c *Cache) stat(f *fill, want Version) (Meta, error) {
	ctx, cancel := context.WithTimeout(f.ctx, statTimeout)
	defer cancel()
	began := time.Now()
	v, err := f.src.Stat(ctx)
	if err == nil && want != (Version{}) && v != want {
		err = ErrChanged
	}
	if errors.Is(err, ErrNotFound) {
		c.storeGone(f)
	}
	return Meta{Version: v, Checked: time.Now(), Took: time.Since(began)}, err
}

// receive takes the metadata, and reads the body of a segment to its end.
func (c *Cache) receive(f *fill, m Meta, body io.Reader) error {
	if err := c.setMeta(f, m); err != nil || f.key.Index == MetaOnly {
		return err
	}
	if f.reserved.bytes == 0 { // the source has told the version just now
		if err := c.reserve(f, c.leaderRoom, m.Version, c.maxWait()); err != nil {
			return err
		}
	}
	return f.copyFrom(body, c.memory.Reserve)
}

// setMeta takes and keeps the metadata; requests find it from now on.
func (c *Cache) setMeta(f *fill, m Meta) error {
	if _, known := f.expectedVersion(); !known {
		c.storeMeta(f, m)
	}
	err := f.setMeta(m)
	if err == nil {
		c.publishMeta(f)
	}
	return err
}

// storeGone keeps that there is no such file.
func (c *Cache) storeGone(f *fill) {
	c.storeMeta(f, Meta{Gone: true, Checked: time.Now(), TTL: f.src.NegativeTTL()})
}

// storeMeta keeps what a fill has learned, unless it was invalidated meanwhile.
func (c *Cache) storeMeta(f *fill, m Meta) {
	f.mu.Lock()
	wasThere := !f.invalidated && c.metas.put(f.key.File, m)
	f.mu.Unlock()
	if wasThere && m.Gone { // a walk over all that is stored: not for each unknown name
		c.purgeTiers(tier.MatchFile(f.key.File))
	}
}

// complete checks a segment that has arrived, gives its last bytes out and stores it, unless the
// lease was lost, or the fill invalidated: then there may be something newer.
func (c *Cache) complete(f *fill, lease context.Context, onDisk bool) error {
	if f.key.Index == MetaOnly {
		return nil
	}
	if err := c.verify(f); err != nil {
		return err
	}
	f.publish()
	c.unreserve(f)
	if lease.Err() == nil && c.store(f, onDisk) {
		c.moveToTier(f)
	}
	return nil
}

// store puts the segments of a complete fill into the tiers. It is false if some are not there.
func (c *Cache) store(f *fill, onDisk bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.invalidated || f.length == 0 {
		return false
	}
	rest, stored := f.chunks, true
	for key := range segmentsOf(f.key, f.version) {
		n := min(len(rest), SegmentSize/tier.ChunkSize)
		s := &tier.Segment{Key: key, Version: f.version, Chunks: rest[:n:n], Hot: f.readers > 1}
		inMemory := c.memory.Put(s)
		stored = (onDisk && c.disk != nil && c.disk.Put(s) || inMemory) && stored
		rest = rest[n:]
	}
	if stored && f.key.Index == Whole { // the last ones may have displaced the first
		v, held := c.holds(f.key)
		return held && v == f.version
	}
	return stored
}

// moveToTier lets go of a segment that is in a tier; first, requests look there.
func (c *Cache) moveToTier(f *fill) {
	c.finish(f)
	f.moveToTier()
}

// loadFailed invalidates the metadata and the fills of a version that the file does not have any
// more, and holds further requests for metadata off for a while.
func (c *Cache) loadFailed(f *fill, err error) {
	if f.fetchesMeta && f.ctx.Err() == nil && !errors.Is(err, ErrNotFound) {
		c.metas.failed(f.key.File, time.Now())
	}
	if v, known := f.expectedVersion(); known && (errors.Is(err, ErrChanged) || errors.Is(err, ErrNotFound)) {
		c.invalidate(tier.MatchFile(f.key.File), &v)
		c.metas.invalidate(f.key.File, v)
	}
}
