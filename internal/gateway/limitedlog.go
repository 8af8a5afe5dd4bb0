package gateway

import (
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// limitedLog writes errors that requests meet, at most a few a second: one file that cannot be read would else let any client
// fill the log.
type limitedLog struct {
	log     *slog.Logger
	limiter *rate.Limiter
	dropped *atomic.Int64
}

func newLimitedLog(log *slog.Logger) limitedLog {
	return limitedLog{log: log, limiter: rate.NewLimiter(5, 20), dropped: &atomic.Int64{}}
}

// error logs at level Error, or counts what is too much; the next line tells how many were left out.
func (l limitedLog) error(text string, args ...any) {
	if !l.limiter.Allow() {
		l.dropped.Add(1)
		return
	}
	if n := l.dropped.Swap(0); n > 0 {
		args = append(args, "left_out_before", n)
	}
	l.log.Error(text, args...)
}
