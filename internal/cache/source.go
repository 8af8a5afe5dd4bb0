package cache

import (
	"context"
	"io"
	"sync"
	"time"
)

// Source fetches one file from where it is. It is used by several goroutines, and longer than the
// request that it was given with. It bounds its own waiting: a storage that says nothing becomes an
// error.
type Source interface {
	// Name says whose load it is, for the limit on fetches: a storage, or a group.
	Name() string
	// Stat asks for the version. It is ErrNotFound when there is no such file.
	Stat(ctx context.Context) (Version, error)
	// Fetch gets bytes of the file, length of them from offset on or as many as there are: none
	// behind its end. want is the version that they have to be of; nil when it is not known. The
	// version that they are of comes with them. The stream ends in an error other than io.EOF when
	// it ends early, and with ctx. The caller closes it.
	Fetch(ctx context.Context, want *Version, offset, length int64) (Version, io.ReadCloser, error)
	// NegativeTTL is how long ErrNotFound holds: 0 as long as Options say; negative: it may be over
	// at any moment, and is not kept.
	NegativeTTL() time.Duration
}

// Distruster is a Source that can be told that it gave wrong content, so that it asks another
// storage from now on.
type Distruster interface{ Distrust(err error) }

// limits bound what is fetched from each source at a time.
type limits struct {
	most int

	mu    sync.Mutex // guards slots
	slots map[string]*slot
}

// slot is one source's share.
type slot struct {
	room  chan struct{}
	users int // that have it or wait for it; guarded by limits.mu
}

// acquire waits for room. The caller calls done.
func (l *limits) acquire(ctx context.Context, name string) (done func(), err error) {
	l.mu.Lock()
	s := l.slots[name]
	if s == nil {
		if l.slots == nil {
			l.slots = make(map[string]*slot)
		}
		s = &slot{room: make(chan struct{}, max(1, l.most))}
		l.slots[name] = s
	}
	s.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(l.slots, name)
		}
	}
	select {
	case s.room <- struct{}{}:
		return func() { <-s.room; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
