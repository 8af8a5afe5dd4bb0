package cachelock

import (
	"math/rand/v2"
	"time"
)

// Policy defines how to wait while another holder has the lock. The zero Policy does not wait. A
// waiting call is notified of the release under every policy; sleeps are the fallback for lost
// messages.
type Policy struct {
	// Retries bounds the sleeps; the error is ErrHeld if the lock is still held after the last one.
	// A notification does not count as a sleep.
	Retries int
	// Sleep and MaxSleep bound each sleep, whose duration is random; defaults 200 ms and 500 ms.
	Sleep, MaxSleep time.Duration
	// Wait is the time to wait, instead of a number of retries.
	Wait time.Duration
}

// Retry returns the policy that sleeps n times, each time between 200 and 500 ms.
func Retry(n int) Policy { return Policy{Retries: n} }

// DefaultRetry returns Retry(5).
func DefaultRetry() Policy { return Retry(5) }

// WaitFor returns the policy that waits for d.
func WaitFor(d time.Duration) Policy { return Policy{Wait: d} }

// waits reports whether the policy waits.
func (p Policy) waits() bool { return p.Retries > 0 || p.Wait > 0 }

// sleep returns a random duration of the next sleep.
func (p Policy) sleep() time.Duration {
	from, to := p.Sleep, p.MaxSleep
	if from <= 0 {
		from = 200 * time.Millisecond
	}
	if to <= 0 {
		to = 500 * time.Millisecond
	}
	return between(from, to)
}

// between returns a random duration in [from, to), or from if that is empty.
func between(from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + rand.N(to-from)
}
