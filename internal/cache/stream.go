package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/content"
)

// From is the place that bytes came from.
type From int

// The places.
const (
	FromNowhere From = iota // none have come yet
	FromMemory
	FromDisk
	FromPeer   // another gateway, during this request
	FromOrigin // the source, during this request
)

// String returns "nowhere", "memory", "disk", "peer" or "origin".
func (f From) String() string {
	return [...]string{"nowhere", "memory", "disk", "peer", "origin"}[f]
}

// Stream is a range of the content of a file, from the tiers or from running fills. Between two
// calls it refers to at most two running fills, of the current segment and of the next one, and to
// one chunk in memory or one open file.
//
// Only one goroutine may use a Stream. Its reads end with the context of Open.
type Stream struct {
	c      *Cache
	ctx    context.Context // of Open
	file   string
	v      Version
	src    Source // nil: nothing is fetched
	offset int64
	left   int64

	by         *fill     // last fill that Get or the stream has waited for: its segment was in no tier before
	f          *fill     // fill of the current segment; nil = the segment comes from a tier
	view       tier.View // of the last chunk, if that is in a file
	forPeer    bool      // another gateway is the reader
	index      int64     // of the current segment; -1 before the first
	aheadIndex int64     // of the last segment that lookAhead has looked for
	ahead      *fill     // the fill for that segment; nil = it was in a tier
	from       From      // place of the first bytes
	fetched    bool      // some bytes came from a peer or the source during this request
	uncached   uncached  // place for fetching chunks of the current segment again
	started    bool      // Next has returned bytes
	seen       uint64    // Cache.corrupted.count before the first look
	refetched  bool      // corrupted content was fetched again once
	busy       int       // successive fills that failed with ErrBusy
	err        error
}

var (
	_ io.ReadCloser = (*Stream)(nil)
	_ io.WriterTo   = (*Stream)(nil)
)

// Open returns a stream of length bytes of a file from offset on, in the version of the entry. The
// first call of Next or Read starts the fetch, so its error can still become a status. The caller
// closes the stream.
func (c *Cache) Open(ctx context.Context, e Entry, src Source, offset, length int64) *Stream {
	s := &Stream{c: c, ctx: ctx, file: e.File, v: e.Version, src: src, by: e.by, offset: offset, left: length,
		index: -1}
	if offset < 0 || length < 0 || offset > e.Version.Size-length {
		s.err = fmt.Errorf("cannot read %q: %d bytes from %d on are not inside of its %d",
			e.File, length, offset, e.Version.Size)
	}
	s.aheadIndex = offset / SegmentSize
	return s
}

// From returns the place that the first bytes came from.
func (s *Stream) From() From { return s.from }

// Fetched reports whether any of the bytes that Next has returned came from another host during
// this request.
func (s *Stream) Fetched() bool { return s.fetched }

// Next waits for the next bytes and returns up to limit (more than 0) of them without a copy: bytes
// in memory, or a part of an open file. A chunk is valid until the next call of any method; bytes
// in memory stay valid while they are referred to. The error is io.EOF after the last byte and
// never before it, and ErrChanged if no source has the rest of this version any more.
func (s *Stream) Next(limit int64) (content.Chunk, error) { return s.nextChunk(limit, s.src != nil) }

// NextStored is the first Next of a stream, for bytes that are in a tier. If they are in none the
// error is ErrNotStored: nothing is fetched, and Next returns the bytes.
func (s *Stream) NextStored(limit int64) (content.Chunk, error) {
	if s.by != nil {
		return content.Chunk{}, ErrNotStored
	}
	chunk, err := s.nextChunk(limit, false)
	if errors.Is(err, ErrNotStored) {
		s.err, s.index = nil, -1
	}
	return chunk, err
}

// nextChunk is Next. Without fetches the error is ErrNotStored if no tier has the bytes.
func (s *Stream) nextChunk(limit int64, fetches bool) (content.Chunk, error) {
	s.view.Release()
	s.view = tier.View{}
	for s.err == nil {
		if s.left == 0 {
			s.err = io.EOF
			break
		}
		if !s.started && s.f == nil {
			s.seen = s.c.corrupted.count.Load()
		}
		chunk, err := s.fromSegment(min(limit, s.left), fetches)
		if err != nil {
			s.err = s.failed(err)
			continue
		}
		if chunk.Length == s.left && s.started && s.c.corrupted.since(s.file, s.seen) {
			s.err = fmt.Errorf("%w: %q", ErrCorrupt, s.file)
			break
		}
		if chunk.Length > 0 {
			s.offset += chunk.Length
			s.left -= chunk.Length
			s.started, s.busy = true, 0
			if fetches {
				s.lookAhead()
			}
			return chunk, nil
		}
	}
	return content.Chunk{}, s.err
}

// fromSegment returns bytes of the current segment, or an empty chunk if the caller must call it
// again.
func (s *Stream) fromSegment(limit int64, fetches bool) (content.Chunk, error) {
	key := tier.KeyAt(s.file, s.offset)
	if s.f != nil && !s.f.covers(key.Index) {
		s.leaveFill(&s.f)
	}
	if s.f != nil {
		return s.fromFill(s.offset-start(s.f.key), limit)
	}
	first := key.Index != s.index // look-up of this segment by the stream, which counts as use
	s.index = key.Index
	if first {
		s.uncached.endUse(s.c)
	}
	if view, ok := s.stored(key, first && s.broughtBy() == FromNowhere); ok {
		return s.fromTier(view, s.offset-start(key), limit, first)
	}
	if !fetches {
		return content.Chunk{}, ErrNotStored
	}
	if f := s.evicted(key); f != nil {
		if view, ok := s.stored(key, false); ok { // a fill has stored the segment since the first look-up
			return s.fromTier(view, s.offset-start(key), limit, first)
		}
		chunk, err := s.fetchUncached(f, limit)
		switch {
		case err == nil, s.started && errors.Is(err, ErrCorrupt):
			return chunk, err
		case s.ctx.Err() != nil:
			return content.Chunk{}, context.Cause(s.ctx)
		} // the fill below tries again, and returns the reason
	}
	return content.Chunk{}, s.joinFill()
}

// joinFill makes the fill of the current segment the source of the stream. A fill that has ended,
// and whose segment no tier has taken, is used only if this request has waited for it or started
// it.
func (s *Stream) joinFill() error {
	o := fillOptions{want: &s.v, forPeer: s.forPeer}
	if !s.c.wasCorrupted(s.file) {
		o.awaited = [2]*fill{s.by, s.ahead}
	}
	streams := 1
	if s.forPeer { // a peer is no client, and does not make the segment hot
		streams = 0
	}
	s.f = s.c.join(s.c.entryAt(s.file, s.offset), s.src, o, streams)
	s.c.n.misses.Add(1)
	if !s.forPeer {
		return nil
	}
	return s.f.awaitLeader(s.ctx, &s.v) // other gateways read only what this one fetches itself
}

// stored looks for a segment in the tiers. A response to another gateway is encrypted and not sent
// by sendfile(2), so its segment does not move to the arena.
func (s *Stream) stored(key SegmentKey, touch bool) (tier.View, bool) {
	if touch && s.forPeer {
		if view, ok := s.c.memory.GetInPlace(key, s.v); ok {
			return view, true
		}
	}
	return s.c.find(key, s.v, touch)
}

// leaveFill ends the use of a fill: of s.f or s.ahead.
func (s *Stream) leaveFill(f **fill) {
	if *f != nil {
		s.c.removeOwner(*f, true, isOverdue(s.ctx))
		*f = nil
	}
}

// broughtBy returns the place that this request has fetched the current segment from before it
// reads the segment; FromNowhere if it has not. Such a segment in a tier is not used a second time
// by being found there.
func (s *Stream) broughtBy() From {
	for _, f := range [...]*fill{s.by, s.ahead} {
		if f != nil && f.covers(s.index) && f.origin() != FromNowhere {
			return f.origin()
		}
	}
	return FromNowhere
}

// fromTier returns bytes of a segment in a tier. first is true for the first look-up of the segment
// by the stream, which is counted.
func (s *Stream) fromTier(view tier.View, in, limit int64, first bool) (content.Chunk, error) {
	chunk, err := view.At(in, limit)
	if err != nil {
		view.Release()
		return content.Chunk{}, nil // the tier has removed the segment, so the next look-up is a miss
	}
	from, hits := FromMemory, &s.c.n.memoryHits
	switch {
	case s.broughtBy() != FromNowhere:
		from, hits = s.broughtBy(), &s.c.n.misses
	case view.FromDisk():
		from, hits = FromDisk, &s.c.n.diskHits
	}
	if first {
		hits.Add(1)
	}
	s.cameFrom(from)
	if chunk.Bytes == nil { // else the view would keep the whole segment in memory after its eviction
		s.view = view
	}
	return chunk, nil
}

// cameFrom records a place that bytes came from.
func (s *Stream) cameFrom(from From) {
	if s.from == FromNowhere {
		s.from = from
	}
	s.fetched = s.fetched || from == FromPeer || from == FromOrigin
}

// fromFill returns bytes of the fill, or an empty chunk after a change.
func (s *Stream) fromFill(in, limit int64) (content.Chunk, error) {
	chunk, changed, isDone, err := s.f.at(s.v, in, limit)
	switch {
	case isDone:
		if from := s.f.origin(); from != FromNowhere { // else the fill has found the segment in a tier
			s.cameFrom(from)
			s.by = s.f
		}
		s.leaveFill(&s.f)
		return content.Chunk{}, nil
	case err != nil:
		return content.Chunk{}, err
	case chunk.Length > 0:
		s.cameFrom(s.f.origin())
		return chunk, nil
	}
	select {
	case <-changed:
		return content.Chunk{}, nil
	case <-s.ctx.Done():
		return content.Chunk{}, context.Cause(s.ctx)
	}
}

// maxBusy bounds the successive fills that fail with ErrBusy in the middle of the range of a
// stream. Each of them waits as long as a new request does before it is rejected: 30 s by default.
const maxBusy = 3

// failed returns the error of the stream, or nil if the stream must try again. Corrupted content is
// fetched again once, if none of it was returned before. A file that is verified first and
// corrupted twice becomes a negative entry, so that a forged id does not cost two downloads for
// each request. In the middle of its range, a stream waits several times for a place in the room
// for fetches.
func (s *Stream) failed(err error) error {
	if errors.Is(err, ErrBusy) && s.started && !s.forPeer && s.busy < maxBusy {
		s.busy++
		s.leaveFill(&s.f)
		return nil
	}
	if !errors.Is(err, ErrCorrupt) || s.started || s.src == nil {
		return err
	}
	if !s.refetched {
		s.refetched = true
		s.leaveFill(&s.f)
		return nil
	}
	if _, ok := s.c.o.VerifyFirst(s.file); ok {
		s.c.metas.put(s.file, Meta{Gone: true, Checked: time.Now()})
	}
	return err
}

// lookAhead starts the fill for the next segment when half of the current one was read, if the
// range continues in the next one. So a slow reader needs the memory of one segment most of the
// time.
func (s *Stream) lookAhead() {
	next := s.index + 1
	if s.uncached.begun() || next <= s.aheadIndex || next*SegmentSize >= s.offset+s.left {
		return
	}
	if s.offset < next*SegmentSize-SegmentSize/2 || s.f != nil && s.f.covers(next) {
		return
	}
	s.aheadIndex = next
	if !s.c.isStored(SegmentKey{File: s.file, Index: next}, s.v) {
		s.leaveFill(&s.ahead)
		s.ahead = s.c.join(s.c.entryAt(s.file, next*SegmentSize), s.src, fillOptions{want: &s.v, forPeer: s.forPeer}, 0)
	}
}

// Read implements io.Reader.
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	chunk, err := s.Next(int64(len(p)))
	if err != nil {
		return 0, err
	}
	return s.load(chunk, p)
}

// WriteTo implements io.WriterTo. It writes chunks as they arrive. Chunks in memory are not copied;
// the writer must not change them.
func (s *Stream) WriteTo(w io.Writer) (n int64, err error) {
	for {
		chunk, err := s.Next(tier.ChunkSize)
		switch {
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		}
		written, err := s.writeChunk(w, chunk)
		if n += int64(written); err != nil {
			return n, err
		}
	}
}

// buffers are copies of chunks in files, for writers.
var buffers = sync.Pool{New: func() any { return new([tier.ChunkSize]byte) }}

func (s *Stream) writeChunk(w io.Writer, chunk content.Chunk) (int, error) {
	if chunk.Bytes != nil {
		return w.Write(chunk.Bytes)
	}
	buf := buffers.Get().(*[tier.ChunkSize]byte)
	defer buffers.Put(buf)
	if _, err := s.load(chunk, buf[:]); err != nil {
		return 0, err
	}
	return w.Write(buf[:chunk.Length])
}

// load reads a chunk into p.
func (s *Stream) load(chunk content.Chunk, p []byte) (int, error) {
	n, err := chunk.Load(p)
	if err != nil {
		s.err = fmt.Errorf("cannot read %q: %w", s.file, err)
		return n, s.err
	}
	return n, nil
}

// errStreamClosed is the error of a Stream after Close.
var errStreamClosed = errors.New("stream is closed")

// Close ends the stream. A running fill continues if its source has begun to respond. Further calls
// do nothing.
func (s *Stream) Close() error {
	s.view.Release()
	s.uncached.endUse(s.c)
	s.leaveFill(&s.f)
	s.leaveFill(&s.ahead)
	s.view, s.err = tier.View{}, errStreamClosed
	return nil
}
