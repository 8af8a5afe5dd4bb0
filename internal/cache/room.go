package cache

import (
	"context"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"fastdfs-gateway/internal/cache/tier"
)

// Divisors of the size of a room for the fetches from one source. A slow source fills its share and
// not the room, so fetches from others begin at once.
const (
	listedShare   = 4  // a quarter of the room
	unlistedShare = 16 // a sixteenth: clients can forge ids with any host that the configuration allows
)

// smallShare is the divisor of the size of a room for its small entries.
const smallShare = 16

// room bounds the bytes of segments that are fetched at a time: of all sources, and of each one. A
// fill reserves its whole segment before it begins: fills that have reserved a part each would wait
// for each other. The memory of the tier is reserved chunk by chunk, see fill.copyFrom.
type room struct {
	all    limit
	shares *lru.Cache[string, limit] // by Source.Name
	// small is for entries of at most one chunk that find no place in the room: in the queue of
	// whole segments an image would wait for all large files that are requested from its storage.
	// nil in a small room.
	small *room
}

// limit is a semaphore for bytes. An entry that is larger than the limit takes all of it: Weighted
// would wait for ever. Such entries are trunk files, of which Whole fetches all segments at once.
type limit struct {
	size      int64
	semaphore *semaphore.Weighted
}

func newLimit(size int64) limit { return limit{size, semaphore.NewWeighted(size)} }

func (l limit) acquireBytes(ctx context.Context, bytes int64) error {
	return l.semaphore.Acquire(ctx, min(bytes, l.size))
}

func (l limit) tryAcquireBytes(bytes int64) bool { return l.semaphore.TryAcquire(min(bytes, l.size)) }

func (l limit) releaseBytes(bytes int64) { l.semaphore.Release(min(bytes, l.size)) }

func newRoom(size int64) *room {
	r := newSimpleRoom(size)
	r.small = newSimpleRoom(size / smallShare)
	return r
}

func newSimpleRoom(size int64) *room {
	shares, _ := lru.New[string, limit](maxKnown) // fails only for sizes below 1
	return &room{all: newLimit(size), shares: shares}
}

// shareOf returns the share of a source, which has room for at least one segment.
func (r *room) shareOf(src Source) limit {
	name := src.Name()
	if share, ok := r.shares.Get(name); ok {
		return share
	}
	part := int64(listedShare)
	if src.Unlisted() {
		part = unlistedShare
	}
	share := newLimit(max(r.all.size/part, SegmentSize))
	if known, ok, _ := r.shares.PeekOrAdd(name, share); ok {
		return known
	}
	return share
}

// reservation is the place of a fill in a room. The zero value is no place.
type reservation struct {
	bytes int64
	room  *room
	share limit
}

// takePlace acquires a place: first in the share of the source, so that fetches from other sources
// do not queue behind this one.
func (r *room) takePlace(src Source, bytes int64, acquire func(l limit, bytes int64) bool) (p reservation, ok bool) {
	p = reservation{bytes, r, r.shareOf(src)}
	if !acquire(p.share, bytes) {
		return reservation{}, false
	}
	if !acquire(r.all, bytes) {
		p.share.releaseBytes(bytes)
		return reservation{}, false
	}
	return p, true
}

// freePlace releases the place.
func (p *reservation) freePlace() {
	if p.bytes > 0 {
		p.room.all.releaseBytes(p.bytes)
		p.share.releaseBytes(p.bytes)
		*p = reservation{}
	}
}

// hasGiven reports whether a reservation is one of the room, or of its small room.
func (r *room) hasGiven(p reservation) bool { return p.bytes > 0 && (p.room == r || p.room == r.small) }

// reserve waits for a place for the segment, for a bounded time. Waiters have a separate room:
// leaders wait for no other gateway, so gateways do not wait for each other in a circle.
func (c *Cache) reserve(f *fill, r *room, v Version, wait time.Duration) error {
	length := v.SegmentLength(f.key.Index)
	hasPlace := r.hasGiven(f.reserved) || c.leaderRoom.hasGiven(f.reserved)
	if f.key.Index == MetaOnly || length == 0 || hasPlace {
		return nil
	}
	p, ok := r.takePlace(f.src, length, limit.tryAcquireBytes) // the usual case, without a timer
	if !ok {
		queue := r
		if length <= tier.ChunkSize {
			queue = r.small
		}
		ctx, cancel := context.WithTimeout(f.ctx, wait)
		defer cancel()
		await := func(l limit, bytes int64) bool { return l.acquireBytes(ctx, bytes) == nil }
		p, ok = queue.takePlace(f.src, length, await)
	}
	switch {
	case !ok && f.ctx.Err() != nil:
		return context.Cause(f.ctx)
	case !ok:
		return fmt.Errorf("%w: no memory for %q", ErrBusy, f.key.String())
	}
	f.reserved.freePlace()
	f.reserved = p
	return nil
}

// unreserve releases the place, and the reserved memory of the tier.
func (c *Cache) unreserve(f *fill) {
	f.reserved.freePlace()
	if f.memory > 0 {
		c.memory.Reserve(-f.memory)
		f.memory = 0
	}
}
