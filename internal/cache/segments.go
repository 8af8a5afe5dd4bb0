package cache

import "fastdfs-gateway/internal/cache/tier"

// find looks for a segment in memory, then on disk. touch is true for the first look of a reader,
// which counts as use.
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

// holdsSegment returns the version of a segment that is stored.
func (c *Cache) holdsSegment(key SegmentKey) (Version, bool) {
	if v, ok := c.memory.Holds(key); ok || c.disk == nil {
		return v, ok
	}
	return c.disk.Holds(key)
}

// holds returns the version of which an entry with content is stored; false if a segment of it is
// missing.
func (c *Cache) holds(key SegmentKey) (v Version, held bool) {
	v, held = c.holdsSegment(SegmentKey{File: key.File, Index: max(0, key.Index)})
	for segment := range segmentsOf(key, v) {
		if other, ok := c.holdsSegment(segment); !held || !ok || other != v {
			return v, false
		}
	}
	return v, held
}

// purgeTiers removes the segments of the files that match, and returns their number. The disk comes
// first, so that nothing is promoted after memory was emptied.
func (c *Cache) purgeTiers(m Match) (n int) {
	if c.onPurge != nil {
		c.onPurge()
	}
	if c.disk != nil {
		n = c.disk.Purge(m)
	}
	return max(n, c.memory.Purge(m))
}
