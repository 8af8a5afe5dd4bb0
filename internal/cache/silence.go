package cache

import (
	"context"
	"errors"
	"io"
	"time"

	"fastdfs-gateway/storage/client/stall"
)

// ErrSilent is the cause of the end of a context of Fleet.Open, when a gateway that can be reached
// sends nothing: it may be stuck, for example since its disk hangs.
var ErrSilent = errors.New("the gateway sends nothing")

// How long a gateway may send nothing, before its head and between two reads of its body.
const (
	copySilence = 2 * time.Second  // for a copy: the source can be asked as well
	fillSilence = 30 * time.Second // for a fill: it may wait for memory and for a slow storage
)

// silence ends a context with ErrSilent when the other gateway sends nothing for the limit.
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

// bound returns a body whose reads are bounded. The first bytes of a file that is verified first
// come after the last one, for which a storage has the time of stall.LowRate.
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
