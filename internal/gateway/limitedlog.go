package gateway

import (
	"context"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// LimitLog returns a logger that writes to the same place, but no more than a few lines a second; the next line tells how many were
// left out. It is for what every request may have to say: one file that cannot be read, or one host that is not well, would else
// let any client fill the log.
func LimitLog(log *slog.Logger) *slog.Logger {
	return slog.New(limitedHandler{log.Handler(), rate.NewLimiter(5, 20), &atomic.Int64{}})
}

// limitedHandler drops records that are too many.
type limitedHandler struct {
	slog.Handler
	limiter *rate.Limiter
	dropped *atomic.Int64
}

// Handle implements slog.Handler.
func (h limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	if !h.limiter.Allow() {
		h.dropped.Add(1)
		return nil
	}
	if n := h.dropped.Swap(0); n > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int64("left_out_before", n))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler; the limit is shared.
func (h limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return limitedHandler{h.Handler.WithAttrs(attrs), h.limiter, h.dropped}
}

// WithGroup implements slog.Handler; the limit is shared.
func (h limitedHandler) WithGroup(name string) slog.Handler {
	return limitedHandler{h.Handler.WithGroup(name), h.limiter, h.dropped}
}
