package tier

import (
	"sync/atomic"
	"time"
)

// breaker leaves something alone for a while after it failed.
type breaker struct {
	retry time.Duration
	until atomic.Int64 // nanoseconds since begin; 0 = it has not failed
}

// begin is a time of the monotonic clock: a jump of the wall clock changes no while.
var begin = time.Now()

// off tells whether it is to be left alone.
func (b *breaker) off() bool {
	until := b.until.Load()
	return until != 0 && time.Since(begin) < time.Duration(until)
}

// trip begins such a while; false when it had begun already.
func (b *breaker) trip() bool {
	was := b.off()
	b.until.Store(int64(time.Since(begin) + b.retry))
	return !was
}
