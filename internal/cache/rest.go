package cache

import (
	"context"
	"errors"

	"fastdfs-gateway/internal/cache/tier"
)

// missing returns the offset of the first bytes of the rest of the stream that are in no tier;
// false if all of them are in one.
func (s *Stream) missing() (offset int64, ok bool) {
	for at := s.offset; at < s.offset+s.left; at += SegmentSize - at%SegmentSize {
		if v, held := s.c.holdsSegment(tier.KeyAt(s.file, at)); !held || v != s.v {
			return at, true
		}
	}
	return 0, false
}

// HasRest reports whether the rest of the stream is in the tiers, so that no source is needed.
func (s *Stream) HasRest() bool {
	_, missing := s.missing()
	return s.err != nil || !missing
}

// AwaitRest fetches the first segment of the rest of the stream that is in no tier, and returns
// when its first bytes have come: so the source can be reached. The error is the one that Next
// would return in the middle of the range. It is nil if too much is being fetched, since Next waits
// longer for that.
func (s *Stream) AwaitRest() error {
	offset, ok := s.missing()
	if !ok || s.err != nil || s.src == nil {
		return s.err
	}
	s.leaveFill(&s.ahead)
	f := s.c.join(s.c.entryAt(s.file, offset), s.src, fillOptions{want: &s.v}, 0)
	s.ahead, s.aheadIndex = f, offset/SegmentSize
	for {
		chunk, changed, isDone, err := f.at(s.v, offset-start(f.key), 1)
		switch {
		case errors.Is(err, ErrBusy):
			return nil
		case err != nil, isDone, chunk.Length > 0:
			return err
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}
