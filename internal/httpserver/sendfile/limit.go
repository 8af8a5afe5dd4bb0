package sendfile

import (
	"math"
	"time"
)

// Limit bounds the rate at which a body is sent. The zero value is no limit.
type Limit struct {
	Rate   int64           // bytes per second
	After  int64           // bytes of the body that are sent before Rate applies
	Lifted <-chan struct{} // closed = no limit from then on; nil = the limit stays
}

const (
	// slicesPerSecond is the number of slices in which a second of a body under a limit is sent. A
	// disconnect is detected at the next slice.
	slicesPerSecond = 10
	// firstSlicesPerSecond is the same for the first slice, which is shorter and sent at once.
	firstSlicesPerSecond = 100
	// maxBehind is the time whose bytes a client may catch up after it was slow.
	maxBehind = time.Second
)

// awaitLimit waits until bytes may be sent, and returns their number. The rate holds for a body as
// a whole: after a late slice the next ones are larger.
func (b *Body) awaitLimit() int64 {
	l := &b.Limit
	if l.Rate <= 0 {
		return math.MaxInt64
	}
	sent := b.result.Sent - l.After // under the limit
	if sent < 0 {
		return -sent
	}
	slice := l.Rate / slicesPerSecond
	if b.limited.IsZero() {
		slice = l.Rate / firstSlicesPerSecond
		b.limited = time.Now().Add(-l.duration(max(slice, 1)))
	}
	slice = max(min(slice, b.Length()-b.result.Sent), 1)
	due := b.limited.Add(l.duration(sent + slice))
	behind := time.Since(due)
	if behind < 0 {
		b.detach()
		if !l.sleep(-behind) {
			l.Rate = 0
			return math.MaxInt64
		}
		return slice
	}
	if behind > maxBehind {
		b.limited, behind = b.limited.Add(behind-maxBehind), maxBehind
	}
	return slice + int64(behind.Seconds()*float64(l.Rate))
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
