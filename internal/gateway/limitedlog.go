package gateway

import (
	"context"
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

// LimitLog returns a logger that writes to the same place, but no more than some lines a second: for clients whose every request
// may have something to say about a host that is not well.
func LimitLog(log *slog.Logger) *slog.Logger {
	return slog.New(limitedHandler{log.Handler(), rate.NewLimiter(5, 50)})
}

// limitedHandler drops records that are too many.
type limitedHandler struct {
	slog.Handler
	limiter *rate.Limiter
}

// Handle implements slog.Handler.
func (h limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	if !h.limiter.Allow() {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler; the limit is shared.
func (h limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return limitedHandler{h.Handler.WithAttrs(attrs), h.limiter}
}

// WithGroup implements slog.Handler; the limit is shared.
func (h limitedHandler) WithGroup(name string) slog.Handler {
	return limitedHandler{h.Handler.WithGroup(name), h.limiter}
}
