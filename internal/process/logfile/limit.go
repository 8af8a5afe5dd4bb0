package logfile

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Limit returns a logger that writes at most 5 lines a second to the same place, after a burst of
// 20. The next line has the number of lines that were left out. Messages that any request can cause
// need a limit: one unreadable file, or one failed host, would let any client fill the log.
func Limit(log *slog.Logger) *slog.Logger {
	return slog.New(limitedHandler{log.Handler(), rate.NewLimiter(5, 20), &atomic.Int64{}})
}

// limitedHandler drops records above the rate.
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

// Limits of a Warner.
const (
	warnEvery   = time.Minute // between warnings about one subject
	maxSubjects = 1024        // kept at a time; for one more, all are removed
)

// Warner logs at most one warning a minute about each subject. It is safe for concurrent use.
type Warner struct {
	log *slog.Logger

	mu   sync.Mutex // guards last
	last map[string]time.Time
}

// NewWarner returns a Warner that writes to a logger.
func NewWarner(log *slog.Logger) *Warner {
	return &Warner{log: log, last: make(map[string]time.Time)}
}

// Warn logs a warning about a subject, unless it has done so within warnEvery. The subject is not
// added to the message.
func (w *Warner) Warn(subject, message string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.last[subject]; ok && time.Since(at) < warnEvery {
		return
	}
	if len(w.last) >= maxSubjects {
		clear(w.last)
	}
	w.last[subject] = time.Now()
	w.log.Warn(message, args...)
}

// maxLine bounds a text of Lines in bytes.
const maxLine = 1 << 10

// Lines returns a writer for a log.Logger of the standard library. Each write logs a warning with
// the message, and the written text as an attribute. Packages such as net/http log data of remote
// hosts, so the text is cut to maxLine, and log should be a logger of Limit.
func Lines(log *slog.Logger, message string) io.Writer { return lines{log, message} }

type lines struct {
	log     *slog.Logger
	message string
}

// Write implements io.Writer.
func (l lines) Write(line []byte) (int, error) {
	text := string(line[:min(len(line), maxLine)])
	if len(line) > maxLine {
		text += "..."
	}
	l.log.Warn(l.message, "text", strings.TrimSpace(text))
	return len(line), nil
}
