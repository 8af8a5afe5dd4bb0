package cachelock

import (
	"math/rand/v2"
	"time"
)

// Policy says what to do while another has the lock. The zero Policy gives up at once. Whatever the policy, somebody who waits is
// woken by the release; sleeping is the backstop for messages that get lost.
type Policy struct {
	// Retries is how many sleeps there are at most; after the last one ErrHeld is the answer. A wake-up by a release uses up none.
	Retries int
	// Sleep and MaxSleep bound each sleep, which is drawn at random between them; defaults 200 ms and 500 ms.
	Sleep, MaxSleep time.Duration
	// Wait is how long to wait, instead of a number of retries.
	Wait time.Duration
}

// GiveUp is the policy that answers at once.
func GiveUp() Policy { return Policy{} }

// Retry sleeps n times, each time between 200 and 500 ms.
func Retry(n int) Policy { return Policy{Retries: n} }

// DefaultRetry is what the Java services do whose place this library takes: five retries.
func DefaultRetry() Policy { return Retry(5) }

// WaitFor waits as long as d.
func WaitFor(d time.Duration) Policy { return Policy{Wait: d} }

// waits tells whether the policy does.
func (p Policy) waits() bool { return p.Retries > 0 || p.Wait > 0 }

// sleep draws the next sleep.
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

// between draws a duration.
func between(from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + rand.N(to-from)
}
