package cache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/panics"
)

// memoryPatience is how long a flight waits for others to be done when they fill half of the memory, before it overdraws that.
const memoryPatience = 500 * time.Millisecond

// A source that has given this many bytes before it broke is asked again as if it never had; else fetches are maxBroken at most.
const (
	goodProgress = 1 << 20
	maxBroken    = 3
)

// fill is the goroutine of a flight.
func (c *Cache) fill(f *flight, src Source) {
	if err := c.fetch(f, src); err != nil {
		c.afterFailure(f, err) // first: who is told of it may ask again at once
		f.fail(err)
	}
	c.giveBack(f)
	c.over(f)
	close(f.over)
}

// afterFailure draws the conclusions from why a flight has failed.
func (c *Cache) afterFailure(f *flight, err error) {
	_, _, v, known := f.progress()
	if !known {
		return
	}
	if errors.Is(err, ErrChanged) || errors.Is(err, ErrNotFound) {
		c.doomFlights(matchFile(f.key.File), &v) // so that nobody is told of it by them any more
		c.records.distrust(f.key.File, v)        // the next request asks again
	}
}

// fetch gets the bytes of a flight, from wherever they are. It is over when it is complete, when the source has failed, and when
// the file has changed; what other gateways do wrong only makes it look elsewhere.
func (c *Cache) fetch(f *flight, src Source) (err error) {
	defer panics.ToError(&err, "filling the cache")
	broken, patience := 0, time.Now().Add(c.o.Wait)
	for {
		before, _, _, _ := f.progress()
		if c.inTiers(f) {
			return nil
		}
		err = c.step(f, src, time.Until(patience))
		after, _, _, _ := f.progress()
		switch progress := after - before; {
		case err == nil:
			return nil
		case f.ctx.Err() != nil:
			return c.whyEnded()
		case errors.Is(err, errAgain):
			if progress > 0 {
				patience = time.Now().Add(c.o.Wait)
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

// inTiers ends a flight whose segment is here already.
func (c *Cache) inTiers(f *flight) bool {
	_, _, v, known := f.progress()
	if !known {
		return false
	}
	view, ok := c.tiers.Get(f.key, v, false)
	if ok {
		view.Release()
		f.leave()
	}
	return ok
}

// step finds out who leads and gets bytes accordingly. patience is how long another gateway may still be waited for.
func (c *Cache) step(f *flight, src Source, patience time.Duration) error {
	lease, err := c.o.Fleet.Lead(f.ctx, f.key.String())
	var held *Held
	switch {
	case err == nil:
		defer lease.Release()
		return c.lead(f, src, lease)
	case errors.As(err, &held) && patience > 0:
		return c.follow(f, src, held.Holder, patience)
	case f.ctx.Err() != nil:
		return c.whyEnded()
	}
	return c.alone(f, src)
}

// alone fetches without a lease.
func (c *Cache) alone(f *flight, src Source) error {
	done, err := c.limits.acquire(f.ctx, src.Name())
	if err != nil {
		return c.whyEnded()
	}
	defer done()
	f.setRole(giving)
	if err := c.copyFromSource(f, src, nil); err != nil {
		return err
	}
	return c.finish(f, src, nil)
}

// lead fetches under the lease: from another gateway that has the segment, or from the source.
func (c *Cache) lead(f *flight, src Source, lease Lease) error {
	if c.inTiers(f) { // while the lease was being taken
		return nil
	}
	f.setRole(giving)
	stop := context.AfterFunc(lease.Context(), func() { f.setRole(following) })
	defer stop()
	holder, err := c.located(f, src, lease)
	if err != nil {
		return err
	}
	if holder == "" || c.copyFromPeer(f, holder, false) != nil {
		if err := c.copyFromSource(f, src, lease); err != nil {
			return err
		}
	}
	return c.finish(f, src, lease)
}

// absent notes that there is no such file, if that is the error, and returns the error.
func (c *Cache) absent(f *flight, err error, lease Lease) error {
	if !errors.Is(err, ErrNotFound) || f.young {
		return err
	}
	m := Meta{Gone: true, Checked: time.Now()}
	if c.publishMeta(f.key.File, m, lease) {
		c.keepOf(f, m)
	}
	return err
}

// keepOf records what a flight has learned, unless the file was purged meanwhile.
func (c *Cache) keepOf(f *flight, m Meta) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.doomed {
		c.records.put(f.key.File, m)
	}
}

// learned notes the version that the source has told, and tells the others when it is news.
func (c *Cache) learned(f *flight, v Version, took time.Duration, lease Lease) error {
	_, _, _, known := f.progress()
	if known && !f.hearsay {
		return f.learn(v)
	}
	m := Meta{Version: v, Checked: time.Now(), Took: took}
	c.keepOf(f, m)
	if err := f.learn(v); err != nil {
		return err
	}
	f.hearsay = false
	c.publishMeta(f.key.File, m, lease) // if that fails, so does publishing the segment
	return nil
}

// copyFromSource fetches what is missing from the source.
func (c *Cache) copyFromSource(f *flight, src Source, lease Lease) error {
	have, length, v, known := f.progress()
	want := &v
	if !known {
		want, length = nil, SegmentSize
	}
	if have >= length {
		return nil
	}
	if err := c.reserve(f); err != nil { // where the version is not known it is done below
		return err
	}
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	f.setFrom(FromOrigin)
	f.peer = ""
	began := time.Now()
	c.n.originFetches.Add(1)
	got, body, err := src.Fetch(ctx, want, f.key.Index*SegmentSize+have, length-have)
	if err != nil {
		c.sourceFailed(f)
		return c.absent(f, err, lease)
	}
	defer func() { _ = body.Close() }() // all that counts was read
	if err = c.learned(f, got, time.Since(began), lease); err == nil {
		err = c.reserve(f)
	}
	if err == nil {
		err = f.copyFrom(body, func(n int) { c.n.originBytes.Add(uint64(n)) })
	}
	if err != nil {
		c.sourceFailed(f)
	}
	return err
}

// sourceFailed counts a failure of a source, if it is one.
func (c *Cache) sourceFailed(f *flight) {
	if f.ctx.Err() == nil {
		c.n.originFailures.Add(1)
	}
}

// reserve waits until there is memory for the segment. It does not wait for ever, since the flights that have it may wait for another
// gateway whose flights wait for this one, or for a storage that is slow.
func (c *Cache) reserve(f *flight) error {
	_, length, _, known := f.progress()
	if f.reserved > 0 || !known || length == 0 {
		return nil
	}
	for _, try := range []struct {
		from     *semaphore.Weighted
		patience time.Duration
	}{{c.filling, memoryPatience}, {c.overdraft, c.o.Wait}} {
		ctx, cancel := context.WithTimeout(f.ctx, try.patience)
		err := try.from.Acquire(ctx, length)
		cancel()
		switch {
		case f.ctx.Err() != nil:
			return c.whyEnded()
		case err == nil:
			f.reserved, f.reservedOf = length, try.from
			if try.from == c.filling { // what is overdrawn is not to drive out what others want
				c.memory.Reserve(length)
			}
			return nil
		}
	}
	return fmt.Errorf("%w: no memory for %q", ErrBusy, f.key.String())
}

// giveBack ends the reservation.
func (c *Cache) giveBack(f *flight) {
	if f.reserved > 0 {
		if f.reservedOf == c.filling {
			c.memory.Reserve(-f.reserved)
		}
		f.reservedOf.Release(f.reserved)
		f.reserved, f.reservedOf = 0, nil
	}
}

// finish checks a complete segment, gives its last bytes out, and publishes and stores it.
func (c *Cache) finish(f *flight, src Source, lease Lease) error {
	c.confirm(f)
	if err := c.verify(f, src); err != nil {
		return err
	}
	f.reveal()
	if !c.publish(f, lease) {
		c.n.lost.Add(1)
		return nil
	}
	c.giveBack(f)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.doomed && f.length > 0 && c.tiers.Put(f.segment()) {
		f.release()
	}
	return nil
}

// publish tells the other gateways that the segment is here. It is false when the lease was lost: then the segment may be older than
// what others have.
func (c *Cache) publish(f *flight, lease Lease) bool {
	if lease == nil {
		return true
	}
	f.mu.Lock()
	nothing, v := f.doomed || f.length == 0, f.version
	f.mu.Unlock()
	if lease.Context().Err() != nil {
		return false
	}
	return nothing || !errors.Is(lease.PublishLocation(c.life, f.key.String(), Location{Version: v}), ErrLost)
}

// matchFile and keyAt save the callers the name of the package.
func matchFile(file string) Match                { return tier.MatchFile(file) }
func keyAt(file string, offset int64) SegmentKey { return tier.KeyAt(file, offset) }
