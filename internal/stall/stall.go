// Package stall replaces the source of a download that stops sending.
//
//	w := stall.New(ctx, stall.Options[*source]{
//		Read: src.Read, Find: findOther, Stop: src.cancel, Drop: (*source).close,
//	})
//	n, next, err := w.Read(p) // next.OK: nothing was read, continue with next.Source
//
// If a Read takes longer than a limit, another source is searched concurrently. The first success
// counts: bytes of the current source end the search, and a source that was found ends the Read.
package stall

import (
	"context"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/panics"
)

// Floor is the default of Options.Floor.
const Floor = 2 * time.Second

const (
	usualGaps = 4   // limit of a Read, in usual gaps
	smoothing = 0.2 // weight of the newest gap in the mean
)

// Options are the functions of the current source.
type Options[S any] struct {
	Floor time.Duration             // shortest limit; default Floor
	Read  func([]byte) (int, error) // reads from the current source
	// Find finds another source that continues with the next byte. It runs concurrently with Read,
	// which has read nothing if Find's source is used. Its context is cancelled when the search is
	// not needed any more; else it lives as long as the download, and the source may depend on it.
	Find func(context.Context) (S, error)
	Stop func()  // ends the running Read; may be called after it
	Drop func(S) // closes a source that was found too late
}

// Found is another source, if OK.
type Found[S any] struct {
	Source S
	OK     bool
}

// Watch watches the reads of one source. Only one goroutine may use it.
type Watch[S any] struct {
	ctx   context.Context // of the download
	o     Options[S]
	gap   time.Duration // mean time until a read returns bytes
	timer *time.Timer   // nil before the first Read

	decided atomic.Bool             // of the running Read: bytes came, or another source was found
	begun   chan context.CancelFunc // ends the search that the timer has begun
	found   chan Found[S]           // result of this search
}

// New returns a Watch for downloads with ctx. It needs no closing.
func New[S any](ctx context.Context, o Options[S]) *Watch[S] {
	if o.Floor <= 0 {
		o.Floor = Floor
	}
	return &Watch[S]{ctx: ctx, o: o, begun: make(chan context.CancelFunc, 1), found: make(chan Found[S], 1)}
}

// Read reads into p. If another source was found before a byte came, n is 0 and err is nil, and the
// content of p is undefined. Otherwise Read takes as long as Options.Read; if that fails during a
// search, as long as the search.
func (w *Watch[S]) Read(p []byte) (n int, next Found[S], err error) {
	w.decided.Store(false)
	began := time.Now()
	if limit := max(w.o.Floor, usualGaps*w.gap); w.timer == nil {
		w.timer = time.AfterFunc(limit, w.search)
	} else {
		w.timer.Reset(limit)
	}
	n, err = w.o.Read(p)
	if !w.timer.Stop() { // a search has begun
		cancel := <-w.begun
		if n > 0 && w.decided.CompareAndSwap(false, true) {
			cancel()
		}
		if next = <-w.found; next.OK {
			return 0, next, nil
		}
		cancel()
	}
	if n > 0 {
		w.gap += time.Duration(smoothing * float64(time.Since(began)-w.gap))
	}
	return n, next, err
}

// search finds another source. The running Read waits for its end, also after a panic in one of the
// functions of Options.
func (w *Watch[S]) search() {
	ctx, cancel := context.WithCancel(w.ctx)
	w.begun <- cancel
	var next Found[S]
	defer func() { w.found <- next }()
	defer panics.Contain("replacing a source")
	if source, err := w.o.Find(ctx); err == nil {
		if w.decided.CompareAndSwap(false, true) {
			next = Found[S]{source, true}
			w.o.Stop()
		} else {
			w.o.Drop(source)
		}
	}
}
