package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/storage/client/stall"
)

const (
	statTimeout = 30 * time.Second // of a request for size and time
	maxOwners   = 2                // gateways that are asked to fetch before this one does
	maxLost     = 2                // holders of leases that are given up
)

// A fetch that breaks off after at least goodProgress bytes is repeated without a limit. After
// fewer bytes, the maxBroken-th break-off in a row ends the fill; without any bytes the first one
// does.
const (
	goodProgress = 1 << 20
	maxBroken    = 3
)

var (
	// errAgain makes the fill look up the entry again, since a lease or a version has changed.
	errAgain = errors.New("look again")
	// errAskAgain: the response is not used. With the metadata that is known now, the same gateway
	// is asked again.
	errAskAgain = errors.New("ask again")
	// errNoPeer: no other gateway has given the entry.
	errNoPeer = errors.New("no other gateway has the entry")
	// errLost is errNoPeer, where the last gateway is silent or cannot be reached.
	errLost = fmt.Errorf("%w: it does not respond", errNoPeer)
	// errPending: the gateway is silent; its request goes on beside the next step.
	errPending = errors.New("the gateway is silent")
)

// load is the goroutine of a fill. Like groupcache's load it is the whole path of a miss:
//
//	look up again -> ask the owners of the entry -> take the lease -> look up again ->
//	ask the next in rank for a copy -> fetch from the source -> verify -> store
//
// Each step waits for its place in the room for fetches (room.go). Readers get bytes while they
// arrive.
func (c *Cache) load(f *fill) {
	err := c.loadAndRetry(f)
	if answer := f.peers.takeAnswer(); answer != nil {
		answer.close()
	}
	f.peers.endRequests()
	if err != nil {
		c.loadFailed(f, err)
	}
	c.unreserve(f)
	if err != nil { // last, since a reader may ask again as soon as it has the error
		c.endFill(f, failed, err)
	} else {
		c.endFill(f, done, nil)
	}
}

// loadAndRetry repeats loadOnce until the entry is complete, the source has failed, or the file has
// changed. After a failure of a peer the next place is tried. Bytes that have arrived are not
// fetched again.
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
		select { // bounds the rate of attempts
		case <-time.After(5 * time.Millisecond):
		case <-f.ctx.Done():
		}
	}
}

// loadOnce is one attempt. waitBudget bounds the waiting for the lease of another gateway. When a
// gateway that was silent responds during a later step, that step ends.
func (c *Cache) loadOnce(f *fill, waitBudget time.Duration) error {
	if found, err := c.lookUp(f); found {
		return err
	}
	place := c.rank(f)
	err := c.loadFromPlace(f, place, waitBudget)
	if err != nil {
		if answer := f.peers.takeAnswer(); answer != nil {
			f.setRole(waiter)
			if err = c.loadFromAnswer(f, answer); err == nil {
				err = c.complete(f, context.Background(), place.keep)
			}
		}
	}
	return err
}

// loadFromPlace loads an entry as its place requires.
func (c *Cache) loadFromPlace(f *fill, place place, waitBudget time.Duration) error {
	err := c.loadFromPeers(f, place.owners, place.keep)
	if !errors.Is(err, errNoPeer) {
		return err
	}
	if errors.Is(err, errLost) && place.next != "" && f.key.Index != MetaOnly {
		c.ask(f, place.next, true) // beside the lease
	}
	lease, release, err := c.acquire(f, place.first, waitBudget > 0)
	if held, ok := errors.AsType[*Held](err); ok {
		return c.awaitHolder(f, held, place.keep, waitBudget)
	}
	if err != nil {
		return err
	}
	release = sync.OnceFunc(release)
	defer release()
	if found, err := c.lookUp(f); found {
		return err
	}
	f.setRole(leader)
	if lease.Done() != nil {
		defer context.AfterFunc(f.valid, release)() // for the fill that replaces this one
		defer context.AfterFunc(lease, func() { f.setRole(waiter) })()
	}
	if err := c.fetch(f, place.next, lease); err != nil {
		return err
	}
	// On disk also if this gateway is not among the first Copies in rank: none of those had the
	// entry, so perhaps none of them keeps it.
	return c.complete(f, lease, true)
}

// acquire takes the lease of the entry. The error is *Held if another gateway has the lease and the
// fill may wait. If the fleet does not reply, or the fill may not wait, a slot of the source
// replaces the lease.
func (c *Cache) acquire(f *fill, first, mayWait bool) (lease context.Context, release func(), err error) {
	if c.o.Fleet == nil {
		return context.Background(), func() {}, nil
	}
	lease, release, err = c.o.Fleet.AcquireLease(f.ctx, f.leaseKey(), first)
	_, isHeld := errors.AsType[*Held](err)
	switch {
	case err == nil, isHeld && mayWait && f.lost < maxLost:
		return lease, release, err
	case f.ctx.Err() != nil:
		return nil, nil, context.Cause(f.ctx)
	}
	release, err = c.awaitSlot(f)
	return context.Background(), release, err
}

// fetch reads the missing bytes of the entry from next, if that gateway has stored them, or from
// the source. If a gateway responds before the source does, its bytes are used.
func (c *Cache) fetch(f *fill, next string, lease context.Context) error {
	if next != "" && f.key.Index != MetaOnly {
		err := c.loadFromPeer(f, next, true)
		if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrBusy) {
			return err
		}
	}
	err := f.peers.settle()
	if err == nil {
		err = c.loadFromSource(f, lease)
	}
	if err == nil {
		return nil
	}
	if answer := f.peers.takeAnswer(); answer != nil {
		return c.loadFromAnswer(f, answer)
	}
	if f.key.Index == MetaOnly && sourceFails(f, err) {
		return c.loadMetaElsewhere(f, next, err)
	}
	return err
}

// awaitSlot waits for one of the slots of the source, which bound fetches without a lease. The time
// is bounded, since fills without readers wait here too.
func (c *Cache) awaitSlot(f *fill) (release func(), err error) {
	name, slots := f.src.Name(), semaphore.NewWeighted(int64(c.o.SourceLimit))
	if known, ok, _ := c.sourceSlots.PeekOrAdd(name, slots); ok {
		slots = known
	}
	step := f.step()
	ctx, cancel := context.WithTimeout(step, c.maxWait())
	defer cancel()
	switch err := slots.Acquire(ctx, 1); {
	case err == nil:
		return func() { slots.Release(1) }, nil
	case step.Err() != nil:
		return nil, context.Cause(step)
	}
	return nil, fmt.Errorf("%w: too many other fetches from %q", ErrBusy, name)
}

// place is the place of this gateway among the gateways that are ranked for an entry.
type place struct {
	first  bool     // this gateway is the owner
	owners []string // gateways before this one, which it asks
	next   string   // gateway after this one, which may have been the owner
	keep   bool     // this gateway keeps the entry on disk
}

// rank returns the place of this gateway for the entry.
func (c *Cache) rank(f *fill) (p place) {
	if c.o.Fleet == nil {
		return place{keep: true}
	}
	copies := c.metas.o.Load().Copies
	ranked := c.o.Fleet.Rank(RankKey(f.key), max(copies, maxOwners)+1)
	self := slices.Index(ranked, "")
	p.first = self == 0
	p.keep = copies == 0 || len(ranked) == 0 || self >= 0 && self < copies
	if c.wasCorrupted(f.key.File) { // other gateways may still have the wrong content
		return p
	}
	if self >= 0 && self+1 < len(ranked) {
		p.next = ranked[self+1]
	}
	if f.forPeer { // a request of a peer is never passed on, so requests cannot go in a circle
		return p
	}
	if self < 0 {
		self = len(ranked)
	}
	p.owners = ranked[:min(self, maxOwners)]
	return p
}

// lookUp looks for metadata that another fill has stored since the request looked for it, and for
// the entry in the tiers. found is true if it finds all, or that there is no such file.
func (c *Cache) lookUp(f *fill) (found bool, err error) {
	v, known := f.expectedVersion()
	if !known {
		_, m, freshness := c.metas.look(f.key.File, time.Now(), f.maxAge)
		switch freshness {
		case gone:
			return true, ErrNotFound
		case fresh:
			if err := f.setMeta(m); err != nil {
				return true, err
			}
			c.publishMeta(f)
			v, known = m.Version, true
		}
	}
	if f.key.Index == MetaOnly {
		if known {
			f.setRole(leader) // other gateways may have it
		}
		return known, nil
	}
	if !known || !c.isStored(f.key, v) {
		return false, nil
	}
	c.endFill(f, done, nil)
	return true, nil
}

// loadFromPeers asks other gateways one after the other. The error is errNoPeer if none of them has
// the entry, one of them has failed, or all are silent.
func (c *Cache) loadFromPeers(f *fill, peers []string, keep bool) error {
	result := errNoPeer
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
			return errAgain // another gateway may have the lease by now
		case !errors.Is(err, ErrNotHere) && !errors.Is(err, ErrUnreachable) && !errors.Is(err, errPending):
			// The source behind the peer may fail for others too.
			c.o.Logger.Info("cannot read from another gateway", "entry", f.leaseKey(), "gateway", peer, "err", err)
			return errNoPeer
		}
		if result = errNoPeer; !errors.Is(err, ErrNotHere) {
			result = errLost
		}
	}
	return result
}

// loadFromAnswer reads from a gateway that has responded after a silence. The error is errAgain if
// that gateway fails.
func (c *Cache) loadFromAnswer(f *fill, answer *peerRequest) error {
	err := c.receiveFrom(f, answer)
	if errors.Is(err, errAskAgain) {
		err = c.loadFromPeer(f, answer.peer, answer.Copy)
	}
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrBusy) {
		return errAgain
	}
	return err
}

// loadFromPeer reads the missing bytes from another gateway; with copied only bytes that it has
// stored. The error is errPending if the gateway is silent.
//
// A place for the segment is reserved before the request if the size is known. If the size comes
// with the response and there is no place at once, the request is repeated when there is one: an
// unread body would fill the connection to the peer.
func (c *Cache) loadFromPeer(f *fill, peer string, copied bool) error {
	for {
		if v, known := f.expectedVersion(); known {
			if err := c.reserve(f, c.roomOf(copied), v, c.maxWait()); err != nil {
				return err
			}
		}
		answer := f.peers.await(c.ask(f, peer, copied))
		if answer == nil {
			return errPending
		}
		if err := c.receiveFrom(f, answer); !errors.Is(err, errAskAgain) {
			return err
		}
		peer, copied = answer.peer, answer.Copy // it may answer an earlier request
	}
}

// roomOf returns the room for bytes of a peer.
func (c *Cache) roomOf(copied bool) *room {
	if copied {
		return c.leaderRoom
	}
	return c.waiterRoom
}

// receiveFrom reads the missing bytes from the response of another gateway, unless its metadata has
// expired or there is no place for the segment: then the error is errAskAgain.
func (c *Cache) receiveFrom(f *fill, q *peerRequest) error {
	defer q.close()
	if q.err != nil {
		if errors.Is(q.err, ErrNotFound) {
			c.storeMeta(f, q.m)
		}
		return q.err
	}
	f.cameFrom(FromPeer)
	if q.Want == nil && !c.metas.isFresh(q.m, time.Now(), f.maxAge) {
		q.close()
		return askAgain(f, c.confirm(f, q.m))
	}
	if c.reserve(f, c.roomOf(q.Copy), q.m.Version, 0) != nil {
		q.close()
		return askAgain(f, c.setMeta(f, q.m))
	}
	defer func() { f.sentBy(nil, q.Offset) }() // from an unknown server
	defer func() { c.n.peerBytes.Add(uint64(f.received() - q.Offset)) }()
	return c.receive(f, q.m, q.body)
}

// askAgain returns errAskAgain if metadata was set without an error, and bytes are missing.
func askAgain(f *fill, err error) error {
	if err != nil || f.key.Index == MetaOnly {
		return err
	}
	return errAskAgain
}

// loadFromSource fetches the missing bytes from the source. The metadata of a MetaOnly entry is not
// stored if the lease was lost meanwhile.
func (c *Cache) loadFromSource(f *fill, lease context.Context) error {
	if f.key.Index == MetaOnly {
		m, err := c.stat(f, c.knownVariant(f.key.File))
		switch {
		case errors.Is(err, ErrChanged):
			c.metas.purge(tier.MatchFile(f.key.File))
			c.purgeTiers(tier.MatchFile(f.key.File))
			return err
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
	got, body, err := f.src.Fetch(f.step(), want, start(f.key)+have, length-have)
	if err == nil {
		defer func() { _ = body.Close() }() // its content was read, or comes from another gateway
		if !f.peers.endRequests() {
			return errAnswered
		}
		err = c.receive(f, Meta{Version: got, Checked: time.Now()}, body)
		f.sentBy(body, have)
	}
	if errors.Is(err, ErrNotFound) {
		c.storeGone(f)
	}
	return err
}

// receive sets the metadata, and reads the body of a segment to its end.
func (c *Cache) receive(f *fill, m Meta, body io.Reader) error {
	if err := c.setMeta(f, m); err != nil || f.key.Index == MetaOnly {
		return err
	}
	if f.reserved.bytes == 0 { // the size was not known before the response
		if err := c.reserve(f, c.leaderRoom, m.Version, c.maxWait()); err != nil {
			return err
		}
	}
	return f.copyFrom(body, c.memory.Reserve)
}
