package sendfile

import (
	"math"
	"sync"
	"time"
)

// Limit bounds the rate at which a body is sent. The zero value is no limit.
type Limit struct {
	Rate   int64           // bytes per second
	After  int64           // bytes of the body that are sent before Rate applies
	Pacer  *Pacer          // of all bodies that share Rate; nil = of this body alone
	Lifted <-chan struct{} // closed = no limit from then on; nil = the limit stays
}

// Pacer makes bodies share a rate: n bytes take n/Rate seconds, and the times of all bytes follow
// one another. The zero value is ready for use.
type Pacer struct {
	mu  sync.Mutex // guards due
	due time.Time  // end of the time of all bytes so far
}

// take adds the time of further bytes. It returns the time since their end, which the caller may
// use for more bytes, and which is negative if the caller has to wait. Time before behind is lost.
func (p *Pacer) take(d, behind time.Duration) (late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.due = p.due.Add(d); p.due.Before(now) {
		late = min(now.Sub(p.due), behind)
		p.due = now
		return late
	}
	return now.Sub(p.due)
}

const (
	// slicesPerSecond is the number of slices in which a second of a body under a limit is sent. A
	// disconnect is detected at the next slice.
	slicesPerSecond = 10
	// firstSlicesPerSecond is the same for the first slice, which is shorter.
	firstSlicesPerSecond = 100
	// maxBehind is the time whose bytes a client may catch up after it was slow.
	maxBehind = time.Second
)

// awaitLimit waits until bytes may be sent, and returns their number. After a late slice the next
// ones are larger.
func (b *Body) awaitLimit() int64 {
	l := &b.Limit
	if l.Rate <= 0 {
		return math.MaxInt64
	}
	if free := l.After - b.result.Sent; free > 0 {
		return free
	}
	slice, behind, first := l.Rate/slicesPerSecond, maxBehind, !b.limited
	if first {
		slice, behind, b.limited = l.Rate/firstSlicesPerSecond, 0, true
		if l.Pacer == nil {
			l.Pacer = new(Pacer)
		}
	}
	slice = max(min(slice, b.Length()-b.result.Sent), 1)
	late := l.Pacer.take(l.duration(slice), behind)
	if late < 0 {
		b.detach()
		if first && b.f != nil {
			_ = b.f.Flush() // the head need not wait; an error recurs at the next write
		}
		if !l.sleep(-late) {
			l.Rate = 0
			return math.MaxInt64
		}
	}
	return slice + int64(max(late, 0).Seconds()*float64(l.Rate))
}

// duration returns the time in which n bytes may be sent.
func (l *Limit) duration(n int64) time.Duration {
	return time.Duration(float64(n) / float64(l.Rate) * float64(time.Second))
}

// sleep waits for d. It returns false if the limit is lifted meanwhile.
func (l *Limit) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.Lifted:
		return false
	}
}
