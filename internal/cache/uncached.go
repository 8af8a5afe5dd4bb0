package cache

import (
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/content"
)

// A request fetches a segment as a whole once. If the segment is evicted before a slow client has
// read all of it, the stream fetches the rest chunk by chunk and stores nothing: a second fetch of
// the segment would evict those of other slow clients, and cost the source 4 MiB for each chunk.
const (
	// maxUncached bounds the streams that fetch chunks of one segment. Further streams share a
	// fill, which costs less for many.
	maxUncached = 3
	// maxKept bounds the bytes of fills that keep, for few readers each, a segment that no tier has
	// taken.
	maxKept = 16 * SegmentSize
)

// uncached is the place of a stream among those that fetch chunks of a segment. The zero value is
// no place.
type uncached struct {
	key   SegmentKey
	chunk []byte // the last fetched one
	at    int64  // offset of chunk in the file
}

func (u *uncached) begun() bool { return u.key.File != "" }

// endUse releases the place, if the stream has one.
func (u *uncached) endUse(c *Cache) {
	if !u.begun() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uncached[u.key]--; c.uncached[u.key] == 0 {
		delete(c.uncached, u.key)
	}
	*u = uncached{}
}

// evicted returns the fill of this request that has fetched the segment, if no tier and no fill has
// the segment any more. It returns nil if the stream must join a fill.
func (s *Stream) evicted(key SegmentKey) *fill {
	if s.forPeer {
		return nil
	}
	c := s.c
	var complete *fill
	for _, f := range [...]*fill{s.by, s.ahead} {
		if f != nil && f.covers(key.Index) && f.isComplete(s.v) {
			complete = f
		}
	}
	if complete == nil || s.uncached.begun() {
		return complete
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range [...]*fill{complete, c.fills[complete.key]} {
		if f != nil && f.isReadable(&s.v) {
			return nil
		}
	}
	if c.uncached[key] == maxUncached || c.life.Err() != nil {
		return nil
	}
	c.uncached[key]++
	s.uncached.key = key
	c.n.misses.Add(1)
	return complete
}

// fetchUncached returns bytes of the chunk at the offset of the stream. The chunk is fetched again,
// and compared with the content that the fill has fetched.
func (s *Stream) fetchUncached(f *fill, limit int64) (content.Chunk, error) {
	u := &s.uncached
	if s.offset < u.at || s.offset >= u.at+int64(len(u.chunk)) {
		chunk, err := s.fetchChunk(f, (s.offset-start(f.key))/tier.ChunkSize)
		if err != nil {
			return content.Chunk{}, err
		}
		u.chunk, u.at = chunk, s.offset-s.offset%tier.ChunkSize
	}
	s.cameFrom(FromOrigin)
	rest := u.chunk[s.offset-u.at:]
	return content.InMemory(rest[:min(limit, int64(len(rest)))]), nil
}

// fetchChunk fetches a chunk of the entry again that a fill has fetched.
func (s *Stream) fetchChunk(f *fill, index int64) ([]byte, error) {
	at := index * tier.ChunkSize
	chunk := make([]byte, min(tier.ChunkSize, f.length-at))
	_, body, err := s.src.Fetch(s.ctx, &s.v, start(f.key)+at, int64(len(chunk)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // its content was read
	if _, err := io.ReadFull(body, chunk); err != nil {
		return nil, err
	}
	before := uint32(0)
	if index > 0 {
		before = f.sums[index-1]
	}
	if crc32.Update(before, crc32.IEEETable, chunk) != f.sums[index] {
		return nil, fmt.Errorf("%w: %q differs from what was fetched before", ErrCorrupt, s.file)
	}
	return chunk, nil
}

// isComplete reports whether all bytes of a version were fetched. From then on length and sums do
// not change.
func (f *fill) isComplete(v Version) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err == nil && f.version == v && f.have > 0 && f.have == f.length
}

// keepBytes keeps the bytes of a fill for its readers, since no tier has taken them. If all kept
// fills have more than maxKept bytes, the oldest ones with few readers free theirs. The last stream
// frees the bytes; without one, a timer does.
func (c *Cache) keepBytes(f *fill) {
	if f.length == 0 {
		return
	}
	c.endFill(f, kept, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	total := int64(0)
	for _, f := range c.keptFills {
		total += f.length
	}
	for _, f := range slices.Clone(c.keptFills) {
		f.mu.Lock()
		if total > maxKept && f.owners <= maxUncached {
			c.transition(f, done)
			total -= f.length
		}
		f.mu.Unlock()
	}
}
