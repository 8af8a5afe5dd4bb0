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
	"fastdfs-gateway/internal/panics"
)

const (
	statTimeout    = 30 * time.Second       // of a request for size and time
	copyTimeout    = 100 * time.Millisecond // until a peer begins to give a copy
	maxOwners      = 2                      // gateways that are asked to fetch before this one does
	reserveTimeout = 500 * time.Millisecond // until a fill that finds half of the memory in use overdraws it
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
	c.remove(f)
	close(f.done)
}

// loadAndRetry ends when the entry is complete, the source has failed, or the file has changed.
// Failures of peers only make it look at other places. Bytes that have arrived are not fetched
// again.
func (c *Cache) loadAndRetry(f *fill) (err error) {
	defer panics.ToError(&err, "filling the cache")
	broken, waitUntil := 0, time.Now().Add(c.o.Wait)
	for {
		before := f.received()
		err = c.loadOnce(f, time.Until(waitUntil))
		progress := f.received() - before
		switch {
		case err == nil:
			return nil
		case f.ctx.Err() != nil:
			return c.whyEnded()
		case errors.Is(err, errAgain):
			if progress > 0 {
				waitUntil = time.Now().Add(c.o.Wait)
			}
		case progress == 0, errors.Is(err, ErrNotFound), errors.Is(err, ErrChanged), errors.Is(err, ErrCorrupt):
			return err
		case progress >= goodProgress:
			broken = 1
		default:
			if broken++; broken == maxBroken {
				return err
			}
		}
		pause(f.ctx)
	}
}

// loadOnce goes the path once. waitBudget is how long the lease of another gateway may still be
// waited for.
func (c *Cache) loadOnce(f *fill, waitBudget time.Duration) error {
	if c.isStored(f) {
		return nil
	}
	owners, next, keep := c.rank(f)
	if err := c.loadFromOwners(f, owners, keep); !errors.Is(err, ErrNotHere) {
		return err
	}
	lease, release, err := c.o.Fleet.Lead(f.ctx, f.leaseKey())
	var held *Held
	switch {
	case errors.As(err, &held) && waitBudget > 0:
		return c.loadFromHolder(f, held.Holder, keep, waitBudget)
	case f.ctx.Err() != nil:
		return c.whyEnded()
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
	f.setRole(leading)
	defer context.AfterFunc(lease, func() { f.setRole(following) })()
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
	ctx, cancel := context.WithTimeout(f.ctx, c.o.Wait)
	defer cancel()
	release, err = c.limits.acquire(ctx, f.src.Name())
	switch {
	case f.ctx.Err() != nil && err != nil:
		err = c.whyEnded()
	case err != nil:
		err = fmt.Errorf("%w: too many other fetches from %q", ErrBusy, f.src.Name())
	}
	return release, err
}

// rank tells the gateways that own an entry rather than this one, the one behind this one, which
// may have been the owner, and whether this one is to keep the entry on disk.
func (c *Cache) rank(f *fill) (owners []string, next string, keep bool) {
	n := max(c.o.Copies, maxOwners) + 1
	ranked := c.o.Fleet.Rank(f.rankKey(), n)
	self := slices.Index(ranked, "")
	switch {
	case len(ranked) == 0:
		return nil, "", true
	case self < 0:
		return ranked[:min(maxOwners, len(ranked))], "", c.o.Copies == 0
	case self+1 < len(ranked) && f.key.Index != Facts:
		next = ranked[self+1]
	}
	return ranked[:min(self, maxOwners)], next, c.o.Copies == 0 || self < c.o.Copies
}

// isStored ends a fill whose segment is in a tier.
func (c *Cache) isStored(f *fill) bool {
	v, known := f.knownVersion()
	if !known || f.key.Index == Facts {
		return false
	}
	view, ok := c.tiers.Get(f.key, v, false)
	if ok {
		view.Release()
		f.leave()
	}
	return ok
}

// loadFromOwners asks the owners one after the other; ErrNotHere when none of them gives the entry.
// A fill that another gateway has asked for asks none, so that requests cannot go in a circle.
func (c *Cache) loadFromOwners(f *fill, owners []string, keep bool) error {
	if f.forPeer {
		return ErrNotHere
	}
	for _, owner := range owners {
		f.setRole(following)
		before := f.received()
		err := c.loadFromPeer(f, owner, false)
		switch {
		case err == nil:
			return c.complete(f, context.Background(), keep)
		case f.ctx.Err() != nil, errors.Is(err, ErrNotFound), errors.Is(err, ErrBusy):
			return err
		case f.received() > before:
			return errAgain
		case !errors.Is(err, ErrNotHere): // it has failed, and its source may fail for others too
			return ErrNotHere
		}
	}
	return ErrNotHere
}

// loadFromHolder asks the gateway that has the lease, and where that gives nothing waits until the
// lease is free.
func (c *Cache) loadFromHolder(f *fill, holder string, keep bool, waitBudget time.Duration) error {
	f.setRole(following)
	if holder != "" {
		before := f.received()
		err := c.loadFromPeer(f, holder, false)
		switch {
		case err == nil:
			return c.complete(f, context.Background(), keep)
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrBusy):
			return err
		case f.received() > before:
			return errAgain // perhaps another gateway leads by now
		}
		c.o.Logger.Info("cannot read from the gateway that fetches", "entry", f.leaseKey(), "gateway", holder, "err", err)
	}
	ctx, cancel := context.WithTimeout(f.ctx, waitBudget)
	defer cancel()
	_ = c.o.Fleet.Wait(ctx, f.leaseKey()) // Lead tells the outcome
	return errAgain
}

// loadFromPeer gets what is missing from another gateway.
func (c *Cache) loadFromPeer(f *fill, peer string, copied bool) error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	v, known := f.knownVersion()
	r := PeerRequest{Key: f.key, Offset: f.received(), MaxAge: f.maxAge, Copy: copied}
	if known {
		r.Want = &v
		if err := c.reserve(f); err != nil { // before: what is not read fills the connection to the peer
			return err
		}
	}
	c.n.peerFetches.Add(1)
	answered := func() bool { return true }
	if copied { // the source can be asked as well, so the peer is not waited for
		answered = time.AfterFunc(copyTimeout, cancel).Stop
	}
	m, body, err := c.o.Fleet.Open(ctx, peer, r)
	answered()
	if err != nil {
		if errors.Is(err, ErrNotFound) {
			c.keep(f, m)
		}
		return err
	}
	if body != nil {
		defer func() { _ = body.Close() }() // all that counts was read
	}
	f.cameFrom(FromPeer, peer)
	isFresh := known || c.metas.isFresh(m, time.Now(), f.maxAge)
	if f.key.Index != Facts && (!isFresh || !c.reserveNow(f, m.Version.SegmentLength(f.key.Index))) {
		_ = body.Close() // for the same reason; it is asked for again when it can be read
		if err := c.accept(f, m, isFresh); err != nil {
			return err
		}
		return c.loadFromPeer(f, peer, copied)
	}
	if !isFresh {
		return c.accept(f, m, false)
	}
	return c.receive(f, m, body, func(n int) { c.n.peerBytes.Add(uint64(n)) })
}

// accept takes facts that a peer knows. Those that have expired are confirmed by the source; while
// that fails they are used for as long as stale ones are.
func (c *Cache) accept(f *fill, m Meta, isFresh bool) error {
	if isFresh {
		c.keep(f, m)
		return f.learn(m)
	}
	confirmed, err := c.stat(f, f.ctx, m.Version)
	switch {
	case err == nil:
		c.keep(f, confirmed)
		err = f.learn(confirmed)
	case f.ctx.Err() == nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrChanged) &&
		c.metas.isUsable(m, time.Now()):
		c.keep(f, m)
		c.metas.failed(f.key.File, time.Now())
		err = f.learn(m)
	}
	if err == nil {
		c.found(f)
	}
	return err
}

// loadFromSource gets what is missing from the source. What is found out under a lease that was
// lost is not kept.
func (c *Cache) loadFromSource(f *fill, lease context.Context) error {
	if f.key.Index == Facts {
		m, err := c.stat(f, f.ctx, Version{})
		switch {
		case err != nil:
			return err
		case lease.Err() != nil:
			c.n.lost.Add(1)
			return f.learn(m)
		}
		return c.receive(f, m, nil, nil)
	}
	if err := c.reserve(f); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	v, known := f.knownVersion()
	have, length := f.received(), int64(SegmentSize)
	var want *Version
	if known {
		want, length = &v, v.SegmentLength(f.key.Index)
	}
	if have >= length {
		return nil
	}
	f.cameFrom(FromOrigin, "")
	began := time.Now()
	c.n.originFetches.Add(1)
	got, body, err := f.src.Fetch(ctx, want, f.key.Index*SegmentSize+have, length-have)
	if err == nil {
		defer func() { _ = body.Close() }() // all that counts was read
		m := Meta{Version: got, Checked: time.Now(), Took: time.Since(began)}
		err = c.receive(f, m, body, func(n int) { c.n.originBytes.Add(uint64(n)) })
	}
	return c.sourceFailed(f, err)
}

// stat asks the source for the facts; ErrChanged when these are not of the version that is wanted,
// unless that is the zero one.
func (c *Cache) stat(f *fill, ctx context.Context, want Version) (Meta, error) {
	ctx, cancel := context.WithTimeout(ctx, statTimeout)
	defer cancel()
	began := time.Now()
	c.n.stats.Add(1)
	v, err := f.src.Stat(ctx)
	if err == nil && want != (Version{}) && v != want {
		err = ErrChanged
	}
	if errors.Is(err, ErrNotFound) {
		c.keepGone(f)
	}
	return Meta{Version: v, Checked: time.Now(), Took: time.Since(began)}, err
}

// sourceFailed counts a failed fetch, and keeps what it tells.
func (c *Cache) sourceFailed(f *fill, err error) error {
	if err != nil && f.ctx.Err() == nil {
		c.n.originFailures.Add(1)
	}
	if errors.Is(err, ErrNotFound) {
		c.keepGone(f)
	}
	return err
}

// receive takes the facts, and reads the body of a segment to its end.
func (c *Cache) receive(f *fill, m Meta, body io.Reader, count func(int)) error {
	if _, known := f.knownVersion(); !known {
		c.keep(f, m)
	}
	if err := f.learn(m); err != nil {
		return err
	}
	c.found(f)
	if f.key.Index == Facts {
		return nil
	}
	if err := c.reserve(f); err != nil {
		return err
	}
	return f.copyFrom(body, count)
}

// keepGone keeps that there is no such file.
func (c *Cache) keepGone(f *fill) {
	c.keep(f, Meta{Gone: true, Checked: time.Now(), TTL: f.src.NegativeTTL()})
}

// keep keeps what a fill has learned, unless it was invalidated meanwhile.
func (c *Cache) keep(f *fill, m Meta) {
	f.mu.Lock()
	wasThere := !f.invalidated && c.metas.put(f.key.File, m)
	f.mu.Unlock()
	if wasThere && m.Gone { // a walk over all that is stored: not for each unknown name
		c.tiers.Drop(matchFile(f.key.File))
	}
}

// complete checks a segment that has arrived, gives its last bytes out and stores it, unless the
// lease was lost, or the fill invalidated: then there may be something newer.
func (c *Cache) complete(f *fill, lease context.Context, onDisk bool) error {
	if f.key.Index == Facts {
		return nil
	}
	if err := c.verify(f, f.src); err != nil {
		return err
	}
	f.reveal()
	if lease.Err() != nil {
		c.n.lost.Add(1)
		return nil
	}
	c.unreserve(f)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.invalidated || f.length == 0 {
		return nil
	}
	s := f.segmentLocked()
	if stored := c.memory.Put(s); onDisk && c.disk != nil && c.disk.Put(s) || stored {
		f.leaveLocked()
	}
	return nil
}

// loadFailed invalidates the facts and the fills of a version that the file does not have any more,
// and holds further requests for facts off for a while.
func (c *Cache) loadFailed(f *fill, err error) {
	if f.finding && f.ctx.Err() == nil && !errors.Is(err, ErrNotFound) {
		c.metas.failed(f.key.File, time.Now())
	}
	if v, known := f.knownVersion(); known && (errors.Is(err, ErrChanged) || errors.Is(err, ErrNotFound)) {
		c.invalidate(matchFile(f.key.File), &v)
		c.metas.distrust(f.key.File, v)
	}
}

// reserve waits until there is memory for the segment; for a bounded time, since the fills that
// have it may wait for another gateway whose fills wait for this one.
func (c *Cache) reserve(f *fill) error {
	length := f.segmentLength()
	if f.reserved > 0 || length == 0 {
		return nil
	}
	for _, try := range []struct {
		from    *semaphore.Weighted
		timeout time.Duration
	}{{c.filling, reserveTimeout}, {c.overdraft, c.o.Wait}} {
		err := acquireWithin(f.ctx, try.from, length, try.timeout)
		switch {
		case err == nil:
			c.reserved(f, length, try.from)
			return nil
		case f.ctx.Err() != nil:
			return c.whyEnded()
		}
	}
	return fmt.Errorf("%w: no memory for %q", ErrBusy, f.key.String())
}

// reserveNow is reserve where that needs no wait.
func (c *Cache) reserveNow(f *fill, length int64) bool {
	if f.reserved > 0 || length == 0 {
		return true
	}
	if !c.filling.TryAcquire(length) {
		return false
	}
	c.reserved(f, length, c.filling)
	return true
}

// reserved notes what a fill has got.
func (c *Cache) reserved(f *fill, length int64, from *semaphore.Weighted) {
	f.reserved, f.reservedOf = length, from
	if from == c.filling { // the overdraft evicts nothing
		c.memory.Reserve(length)
	}
}

// acquireWithin waits for room until a timeout. Where there is room it allocates nothing.
func acquireWithin(ctx context.Context, from *semaphore.Weighted, n int64, timeout time.Duration) error {
	if from.TryAcquire(n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return from.Acquire(ctx, n)
}

// unreserve ends the reservation.
func (c *Cache) unreserve(f *fill) {
	if f.reserved > 0 {
		if f.reservedOf == c.filling {
			c.memory.Reserve(-f.reserved)
		}
		f.reservedOf.Release(f.reserved)
		f.reserved, f.reservedOf = 0, nil
	}
}

// pause keeps a fill that looks again from spinning.
func pause(ctx context.Context) {
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// matchFile and keyAt save the callers the name of the package.
func matchFile(file string) Match                { return tier.MatchFile(file) }
func keyAt(file string, offset int64) SegmentKey { return tier.KeyAt(file, offset) }
