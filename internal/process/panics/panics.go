// Package panics contains panics, which are bugs, while input from outside is handled: one request,
// one response or one message fails, and the panic is counted and logged with its stack.
//
//	func (f *fetcher) Stat(ctx context.Context) (v cache.Version, err error) {
//		defer panics.ToError(&err, "asking a storage")
//
// ToError is for functions that return an error, Contain for goroutines whose result is not
// awaited, and Abort for handlers of net/http.
package panics

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
)

// Err is the kind of the errors of ToError.
var Err = errors.New("internal error")

var (
	total  atomic.Int64
	logger atomic.Pointer[slog.Logger] // nil = slog.Default()
)

// Total returns the number of contained panics in this process.
func Total() int64 { return total.Load() }

// SetLog sets the log of the process.
func SetLog(l *slog.Logger) { logger.Store(l) }

// Report counts and logs a value that recover returned. while names the failed operation; about are
// further attributes of the log line.
func Report(p any, while string, about ...any) {
	total.Add(1)
	l := logger.Load()
	if l == nil {
		l = slog.Default()
	}
	l.Error("BUG: panic while "+while, append(about, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))...)
}

// Contain stops and reports a panic. A function without a result defers it.
func Contain(while string) {
	if p := recover(); p != nil {
		Report(p, while)
	}
}

// Abort reports a panic, and makes net/http abort the response: net/http closes the connection, or
// resets the stream of HTTP/2, and logs nothing. A handler of net/http defers it. A panic with
// http.ErrAbortHandler is not reported. about is as in Report.
func Abort(while string, about ...any) {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p)
	default:
		Report(p, while, about...)
		panic(http.ErrAbortHandler)
	}
}

// ToError reports a panic and sets *err to an error that wraps Err. A function with a named error
// result defers it.
func ToError(err *error, while string) {
	if p := recover(); p != nil {
		Report(p, while)
		*err = fmt.Errorf("%w while %s", Err, while)
	}
}
