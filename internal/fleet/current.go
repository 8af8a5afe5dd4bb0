package fleet

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	catchUpTime = 2 * time.Second        // how long a request waits for the log of purges to be read
	wakeEvery   = 100 * time.Millisecond // how often it asks for that meanwhile
)

// errBehind is the error of a gateway that has not applied a purge that another one has.
var errBehind = errors.New("this gateway has not applied the latest purges")

// purgeCursor knows when the log of purges was read to its end.
type purgeCursor struct {
	born time.Time // zero of at
	// Nanoseconds since born, when the last exchange that left nothing to apply began; 0 = there
	// was none.
	at atomic.Int64

	mu   sync.Mutex    // guards next
	next chan struct{} // closed when the log is read the next time
}

func newPurgeCursor() *purgeCursor {
	return &purgeCursor{born: time.Now(), next: make(chan struct{})}
}

// now is the time for read.
func (r *purgeCursor) now() time.Duration { return time.Since(r.born) }

// read notes that the log was read to its end by an exchange that began at a time.
func (r *purgeCursor) read(began time.Duration) {
	r.at.Store(max(1, int64(began)))
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.next)
	r.next = make(chan struct{})
}

// age is how long ago the log was read; 0 when it never was: then nothing is kept that could be
// older than a purge.
func (r *purgeCursor) age() time.Duration {
	if at := r.at.Load(); at != 0 {
		return r.now() - time.Duration(at)
	}
	return 0
}

// soon is closed when the log is read the next time.
func (r *purgeCursor) soon() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// WaitApplied returns when this gateway may answer out of its caches: normally at once. A gateway
// that was stopped, or cut off from Redis without noticing it, for so long that a purge may have
// been given up on it, first applies what was purged meanwhile; it waits for that no longer than
// two seconds, and not at all while Redis is known to be away.
func (f *Fleet) WaitApplied() {
	f.catchUp(f.isCurrent)
}

// waitFor returns when this gateway has applied the purge with a fence, and so has all that another
// one knows.
func (f *Fleet) waitFor(fence int64) error {
	f.WaitApplied()
	if !f.catchUp(func() bool { return f.appliedUpTo() >= fence }) {
		return errBehind
	}
	return nil
}

// catchUp has the log of purges, and the list of members, read until ok is true.
func (f *Fleet) catchUp(ok func() bool) bool { return f.catchUpWithin(catchUpTime, ok) }

func (f *Fleet) catchUpWithin(limit time.Duration, ok func() bool) bool {
	if ok() {
		return true
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	again := time.NewTicker(wakeEvery)
	defer again.Stop()
	for {
		read := f.cursor.soon()
		switch {
		case ok():
			return true
		case f.breaker.retryAfter() > 0:
			return false
		}
		f.wake()
		select {
		case <-read:
		case <-again.C:
		case <-timeout.C:
			return false
		case <-f.life.Done():
			return false
		}
	}
}

// isCurrent tells whether every purge that has returned since the log was read would have waited
// for this gateway. Behind a process that has its name, that one takes care of it.
func (f *Fleet) isCurrent() bool {
	return f.handedOver.Load() || f.cursor.age() < f.purges.confirm-f.purges.beat || f.breaker.retryAfter() > 0
}
