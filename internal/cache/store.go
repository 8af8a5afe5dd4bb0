package cache

import (
	"context"
	"errors"
	"time"

	"fastdfs-gateway/internal/cache/tier"
)

// setMeta sets the metadata of a fill, and stores it unless the version was known before. From now
// on requests find the metadata.
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

// storeGone stores a negative entry.
func (c *Cache) storeGone(f *fill) {
	c.storeMeta(f, Meta{Gone: true, Checked: time.Now(), TTL: f.src.NegativeTTL()})
}

// storeMeta stores the metadata of a fill, unless that was invalidated meanwhile.
func (c *Cache) storeMeta(f *fill, m Meta) {
	f.mu.Lock()
	wasThere := f.valid.Err() == nil && c.metas.put(f.key.File, m)
	f.mu.Unlock()
	if !m.Gone {
		return
	}
	// An earlier process may have fetched it. Unknown names purge nothing: that locks the tiers.
	if _, held := c.holdsSegment(tier.KeyAt(f.key.File, 0)); held || wasThere {
		c.purgeTiers(tier.MatchFile(f.key.File))
	}
}

// complete verifies a segment, publishes its last bytes and stores it. The result of a fill that
// was invalidated, or has lost its lease, is not stored: a newer version may exist.
func (c *Cache) complete(f *fill, lease context.Context, onDisk bool) error {
	if f.key.Index == MetaOnly {
		return nil
	}
	if err := c.verify(f); err != nil {
		return err
	}
	f.publish()
	c.unreserve(f)
	if lease.Err() == nil && f.valid.Err() == nil && c.store(f, onDisk) {
		c.endFill(f, done, nil)
	} else {
		c.keepBytes(f)
	}
	return nil
}

// store puts the segments of a complete fill into the tiers. It returns false if one of them was
// not stored.
func (c *Cache) store(f *fill, onDisk bool) bool {
	// The last segments may have evicted the first ones. isStored may wait for the disk.
	return c.put(f, onDisk) && (f.key.Index != Whole || c.isStored(f.key, f.version))
}

// put hands the segments of a complete fill to the tiers.
func (c *Cache) put(f *fill, onDisk bool) bool {
	f.mu.Lock() // keeps invalidate, and thus a purge, from coming in between
	defer f.mu.Unlock()
	if f.valid.Err() != nil || len(f.chunks) == 0 {
		return false
	}
	rest, stored := f.chunks, true
	for key := range segmentsOf(f.key, f.version) {
		n := min(len(rest), SegmentSize/tier.ChunkSize)
		s := &tier.Segment{Key: key, Version: f.version, Chunks: rest[:n:n], Hot: f.streams > 1}
		inMemory := c.memory.Put(s)
		stored = (onDisk && c.disk != nil && c.disk.Put(s) || inMemory) && stored
		rest = rest[n:]
	}
	return stored
}

// loadFailed invalidates the metadata and the fills of a file that changed or is gone, and delays
// further requests for metadata.
func (c *Cache) loadFailed(f *fill, err error) {
	if f.fetchesMeta && f.ctx.Err() == nil && !errors.Is(err, ErrNotFound) {
		c.metas.failed(f.key.File, time.Now())
	}
	if v, known := f.expectedVersion(); known && (errors.Is(err, ErrChanged) || errors.Is(err, ErrNotFound)) {
		c.invalidate(tier.MatchFile(f.key.File), &v)
		c.metas.invalidate(f.key.File, v)
	}
}

// find looks for a segment in memory, then on disk. touch is true for the first look-up of a
// reader, which counts as use.
func (c *Cache) find(key SegmentKey, v Version, touch bool) (tier.View, bool) {
	if view, ok := c.memory.Get(key, v, touch); ok || c.disk == nil {
		return view, ok
	}
	view, ok := c.disk.Get(key, v, touch)
	if ok && touch {
		return c.memory.Promote(view)
	}
	return view, ok
}

// holdsSegment returns the version of a stored segment.
func (c *Cache) holdsSegment(key SegmentKey) (Version, bool) {
	if v, ok := c.memory.Holds(key); ok || c.disk == nil {
		return v, ok
	}
	return c.disk.Holds(key)
}

// holds returns the version in which all segments of an entry with content are stored; false if one
// of them is missing.
func (c *Cache) holds(key SegmentKey) (v Version, held bool) {
	v, held = c.holdsSegment(SegmentKey{File: key.File, Index: max(0, key.Index)})
	for segment := range segmentsOf(key, v) {
		if other, ok := c.holdsSegment(segment); !held || !ok || other != v {
			return v, false
		}
	}
	return v, held
}

// isStored reports whether all segments of an entry with content are stored in a version.
func (c *Cache) isStored(key SegmentKey, want Version) bool {
	for segment := range segmentsOf(key, want) {
		if v, held := c.holdsSegment(segment); !held || v != want {
			return false
		}
	}
	return true
}

// purgeTiers removes the segments of the files that match, and returns their number. The disk is
// purged first, so that no segment is promoted after the purge of the memory.
func (c *Cache) purgeTiers(m Match) (n int) {
	if c.onPurge != nil {
		c.onPurge()
	}
	if c.disk != nil {
		n = c.disk.Purge(m)
	}
	return max(n, c.memory.Purge(m))
}
