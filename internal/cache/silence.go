package cache

import (
	"context"
	"errors"
	"io"
	"time"

	"fastdfs-gateway/storage/client/stall"
)

// ErrSilent is the cause of the end of a context of Fleet.Open, when a peer that can be reached
// sends nothing: it may be stuck, for example in a read of a hanging disk.
var ErrSilent = errors.New("the gateway sends nothing")

// Limits of the time in which a peer sends nothing: before the head of its response, and in one
// read of the body.
const (
	copySilence = 2 * time.Second  // for a copy: the alternative is a request to the source
	fillSilence = 30 * time.Second // for a fill: the peer may wait for memory and for a slow storage
)

// silence is a body of a peer. It ends a context with ErrSilent when the peer sends nothing for the
// limit.
type silence struct {
	body  io.Reader
	limit time.Duration
	timer *time.Timer
}

// awaitPeer returns a context for a request to another gateway. It ends with ErrSilent if the timer
// is not stopped in time.
func (f *fill) awaitPeer(copied bool) (ctx context.Context, cancel context.CancelCauseFunc, s *silence) {
	ctx, cancel = context.WithCancelCause(f.ctx)
	s = &silence{limit: fillSilence}
	if copied {
		s.limit = copySilence
	}
	s.timer = time.AfterFunc(s.limit, func() { cancel(ErrSilent) })
	return ctx, cancel, s
}

// bound returns a body whose reads are bounded. A peer sends the first byte of a file that is
// verified first only after it has received the last one from a storage, which may take as long as
// stall.LowRate allows.
func (s *silence) bound(f *fill, length int64, copied bool, body io.Reader) io.Reader {
	if f.verifyFirst && !copied {
		s.limit += time.Duration(length) * time.Second / stall.LowRate
	}
	s.body = body
	return s
}

// Read implements io.Reader.
func (s *silence) Read(p []byte) (int, error) {
	s.timer.Reset(s.limit)
	defer s.timer.Stop()
	return s.body.Read(p)
}
