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

// From says where bytes came from.
type From int

// The places.
const (
	FromNowhere From = iota // not known yet
	FromMemory
	FromDisk
	FromPeer   // another gateway, just now
	FromOrigin // the source, just now
)

// String gives "memory", "disk", "peer" or "origin".
func (f From) String() string {
	return [...]string{"nowhere", "memory", "disk", "peer", "origin"}[f]
}

// Stream is a range of a file's content. Where it is not in a tier it comes as it is fetched.
// Between two calls a Stream holds on to a segment in memory, or to an open file.
//
// Only one goroutine may use it. Its reads end with the context that was given to Open.
type Stream struct {
	c      *Cache
	ctx    context.Context // of the request whose part the stream is
	file   string
	v      Version
	src    Source // nil: nothing is fetched
	offset int64
	left   int64

	by         *fill     // that has brought content while the request waited: it was in no tier before
	f          *fill     // that the current segment comes from
	view       tier.View // that the last chunk is in
	forPeer    bool      // another gateway reads
	index      int64     // of the segment that was touched last; -1 before the first
	aheadIndex int64     // of the newest segment that was looked for ahead of time
	ahead      *fill     // for that one, if it was not in a tier
	from       From
	started    bool   // some bytes were given out
	seen       uint64 // damaged files that had been dropped before the first bytes were looked for
	refetched  bool   // wrong content was fetched again already
	err        error
}

var (
	_ io.ReadCloser = (*Stream)(nil)
	_ io.WriterTo   = (*Stream)(nil)
)

// Open gives length bytes of a file from offset on, of the version of the entry. Nothing is fetched
// before the first call of Next or Read, so its error can still become a status. The caller closes
// the stream.
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

// From tells where the first bytes came from.
func (s *Stream) From() From { return s.from }

// Next waits for the next bytes and gives up to limit (more than 0) of them, without a copy: in
// memory, or the place in a file where they are. A chunk is good until the next call of any
// method; bytes in memory stay good for as long as they are referred to. io.EOF comes after the
// last byte and never before. ErrChanged means that the rest cannot be had any more.
func (s *Stream) Next(limit int64) (content.Chunk, error) {
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
		chunk, err := s.next(min(limit, s.left))
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
			s.started = true
			s.lookAhead()
			return chunk, nil
		}
	}
	return content.Chunk{}, s.err
}

// next gives bytes of the current segment, or none when it has to be looked for again.
func (s *Stream) next(limit int64) (content.Chunk, error) {
	key := tier.KeyAt(s.file, s.offset)
	if s.f != nil && !s.f.covers(key.Index) {
		s.closeFill()
	}
	if s.f != nil {
		return s.fromFill(s.offset-start(s.f.key), limit)
	}
	first := key.Index != s.index // look of the stream at this segment: that counts as use
	s.index = key.Index
	if view, ok := s.stored(key, first && s.broughtBy() == FromNowhere); ok {
		return s.fromTier(view, s.offset-start(key), limit, first)
	}
	if s.src == nil {
		return content.Chunk{}, ErrNotHere
	}
	s.f = s.c.join(s.c.entryAt(s.file, s.offset), s.src, fillOptions{want: &s.v, forPeer: s.forPeer}, s.readers())
	s.c.n.misses.Add(1)
	if s.forPeer {
		return content.Chunk{}, s.f.awaitLeader(s.ctx, &s.v)
	}
	return content.Chunk{}, nil
}

// stored looks for a segment in the tiers. What another gateway reads is encrypted, not sent by
// sendfile, so it stays where it is.
func (s *Stream) stored(key SegmentKey, touch bool) (tier.View, bool) {
	if touch && s.forPeer {
		if view, ok := s.c.memory.GetInPlace(key, s.v); ok {
			return view, true
		}
	}
	return s.c.find(key, s.v, touch)
}

// readers is what the stream counts for among the readers of a fill: another gateway is none of
// the clients that make a segment hot.
func (s *Stream) readers() int {
	if s.forPeer {
		return 0
	}
	return 1
}

// closeFill ends the use of the fill that the current segment comes from.
func (s *Stream) closeFill() {
	if s.f != nil {
		s.c.removeReader(s.ctx, s.f, true)
		s.f = nil
	}
}

// broughtBy is where the current segment was brought from for this request, before it came to it.
// That the segment is in a tier by now is then no second use of it.
func (s *Stream) broughtBy() From {
	for _, f := range [...]*fill{s.by, s.ahead} {
		if f != nil && f.covers(s.index) && f.origin() != FromNowhere {
			return f.origin()
		}
	}
	return FromNowhere
}

// fromTier gives bytes that were found. first tells that it is the stream's first look at the
// segment, which is counted.
func (s *Stream) fromTier(view tier.View, in, limit int64, first bool) (content.Chunk, error) {
	chunk, err := view.At(in, limit)
	if err != nil {
		view.Release()
		return content.Chunk{}, nil // it was dropped, so it is fetched again
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
	s.view = view
	return chunk, nil
}

// cameFrom notes where the first bytes came from.
func (s *Stream) cameFrom(from From) {
	if s.from == FromNowhere {
		s.from = from
	}
}

func (s *Stream) fromFill(in, limit int64) (content.Chunk, error) {
	chunk, changed, left, err := s.f.at(s.v, in, limit)
	switch {
	case left:
		s.cameFrom(s.f.origin())
		s.by = s.f
		s.closeFill()
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

// failed decides about an error. Content that was found wrong before any of it was given out is
// fetched again once. If it is wrong again in a file that is verified first, there is no such file:
// that is remembered, so that requests for a forged id do not cost two downloads each.
func (s *Stream) failed(err error) error {
	if !errors.Is(err, ErrCorrupt) || s.started || s.src == nil {
		return err
	}
	if !s.refetched {
		s.refetched = true
		s.closeFill()
		return nil
	}
	if _, ok := s.c.o.VerifyFirst(s.file); ok {
		s.c.metas.put(s.file, Meta{Gone: true, Checked: time.Now()})
	}
	return err
}

// lookAhead lets the next segment be fetched when the current one is there for the better half, if
// the range goes on into it.
func (s *Stream) lookAhead() {
	next := s.index + 1
	if s.src == nil || next <= s.aheadIndex || next*SegmentSize >= s.offset+s.left {
		return
	}
	if s.f != nil && (s.f.covers(next) || s.f.received() < s.v.SegmentLength(s.index)/2) {
		return
	}
	s.aheadIndex = next
	if v, held := s.c.holdsSegment(SegmentKey{File: s.file, Index: next}); !held || v != s.v {
		s.closeAhead()
		s.ahead = s.c.join(s.c.entryAt(s.file, next*SegmentSize), s.src, fillOptions{want: &s.v, forPeer: s.forPeer}, 0)
	}
}

// closeAhead ends the waiting for the segment that was looked for ahead of time.
func (s *Stream) closeAhead() {
	if s.ahead != nil {
		s.c.removeReader(s.ctx, s.ahead, true)
		s.ahead = nil
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

// WriteTo implements io.WriterTo: a chunk at a time at most, as it arrives. What is in memory is
// not copied; the writer must not change it.
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

// buffers are for what is not in memory.
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

// Close ends the stream. What is being fetched is fetched to its end, if its source has begun to
// answer. Further calls do nothing.
func (s *Stream) Close() error {
	s.view.Release()
	s.closeFill()
	s.closeAhead()
	s.view, s.err = tier.View{}, errStreamClosed
	return nil
}
