// Package panics keeps a panic, which is a bug, from ending the process where input from outside is
// handled: one request, one answer or one message fails, the bug is counted and logged with its
// stack.
//
//	func (f *fetcher) Stat(ctx context.Context) (v cache.Version, err error) {
//		defer panics.ToError(&err, "asking a storage")
//
// A goroutine that others wait for turns a panic into the error that they get; Contain is for those
// that nobody waits for.
package panics

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
)

// Err is what a panic has become.
var Err = errors.New("internal error")

var (
	total  atomic.Int64
	logger atomic.Pointer[slog.Logger] // nil = slog.Default()
)

// Total is how many panics there have been in this process.
func Total() int64 { return total.Load() }

// SetLog names the log of the process.
func SetLog(l *slog.Logger) { logger.Store(l) }

// Report counts and logs what recover has returned. while says what was done, about are further attributes of the line.
func Report(p any, while string, about ...any) {
	total.Add(1)
	l := logger.Load()
	if l == nil {
		l = slog.Default()
	}
	l.Error("BUG: panic while "+while, append(about, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))...)
}

// Contain is deferred by a function that nobody waits for.
func Contain(while string) {
	if p := recover(); p != nil {
		Report(p, while)
	}
}

// ToError is deferred by a function with an error, which becomes Err.
func ToError(err *error, while string) {
	if p := recover(); p != nil {
		Report(p, while)
		*err = fmt.Errorf("%w while %s", Err, while)
	}
}
