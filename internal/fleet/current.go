package fleet

import (
	"sync"
	"sync/atomic"
	"time"
)

// catchUpTime is how long a request waits for the log of purges to be read, and poking how often it asks for that meanwhile.
const (
	catchUpTime = 2 * time.Second
	poking      = 100 * time.Millisecond
)

// reading knows when the log of purges was read to its end.
type reading struct {
	born time.Time    // zero of at
	at   atomic.Int64 // nanoseconds since born, when the last exchange that left nothing to obey began; 0 = there was none

	mu   sync.Mutex    // guards next
	next chan struct{} // closed when the log is read the next time
}

func newReading() *reading { return &reading{born: time.Now(), next: make(chan struct{})} }

// now is the time for done.
func (r *reading) now() time.Duration { return time.Since(r.born) }

// done notes that the log was read to its end by an exchange that began at a time.
func (r *reading) done(began time.Duration) {
	r.at.Store(max(1, int64(began)))
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.next)
	r.next = make(chan struct{})
}

// age is how long ago the log was read; 0 when it never was: then there is nothing that could be older than a purge.
func (r *reading) age() time.Duration {
	if at := r.at.Load(); at != 0 {
		return r.now() - time.Duration(at)
	}
	return 0
}

// soon is closed when the log is read the next time.
func (r *reading) soon() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// Current returns when this gateway may answer out of its caches: at once in good times. A gateway that was stopped, or cut off from
// Redis without noticing it, for so long that a purge may have been given up on it, first obeys what was purged meanwhile; it waits
// for that no longer than two seconds, and not at all while Redis is known to be away.
func (f *Fleet) Current() {
	if f.isCurrent() {
		return
	}
	patience := time.NewTimer(catchUpTime)
	defer patience.Stop()
	poke := time.NewTicker(poking)
	defer poke.Stop()
	for {
		read := f.reading.soon()
		if f.isCurrent() {
			return
		}
		f.poke()
		select {
		case <-read:
		case <-poke.C:
		case <-patience.C:
			return
		case <-f.life.Done():
			return
		}
	}
}

// isCurrent tells whether every purge that has returned since the log was read would have waited for this gateway.
func (f *Fleet) isCurrent() bool {
	return f.reading.age() < f.purges.confirm-f.purges.beat || f.breaker.retryAfter() > 0
}
