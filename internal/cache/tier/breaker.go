package tier

import (
	"sync/atomic"
	"time"
)

// breaker leaves something alone for a while after it failed.
type breaker struct {
	retry time.Duration
	until atomic.Int64 // nanoseconds since 1970
}

// off tells whether it is to be left alone.
func (b *breaker) off() bool {
	until := b.until.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// trip begins such a while; false when it had begun already.
func (b *breaker) trip() bool {
	was := b.off()
	b.until.Store(time.Now().Add(b.retry).UnixNano())
	return !was
}
