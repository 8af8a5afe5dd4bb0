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
	"sync"
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
	// not needed any more; the source must not depend on it.
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

	mu      sync.Mutex // guards the fields below
	waiting bool       // a Read waits for its first byte
	due     time.Time  // begin of the search
	search  *search[S] // nil = not running
}

// search is one run of Find.
type search[S any] struct {
	cancel context.CancelFunc
	done   chan struct{} // closed at the end
	found  Found[S]      // set before done is closed
}

// New returns a Watch for downloads with ctx. It needs no closing.
func New[S any](ctx context.Context, o Options[S]) *Watch[S] {
	if o.Floor <= 0 {
		o.Floor = Floor
	}
	return &Watch[S]{ctx: ctx, o: o}
}

// Read reads into p. If another source was found before a byte came, n is 0 and err is nil, and the
// content of p is undefined. Otherwise Read takes as long as Options.Read.
func (w *Watch[S]) Read(p []byte) (n int, next Found[S], err error) {
	began := time.Now()
	limit := max(w.o.Floor, usualGaps*w.gap)
	w.mu.Lock()
	w.waiting, w.due = true, began.Add(limit)
	w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(limit, w.replace)
	} else {
		w.timer.Reset(limit)
	}
	n, err = w.o.Read(p)
	w.timer.Stop()
	if next = w.settle(n); next.OK {
		return 0, next, nil
	}
	if n > 0 {
		w.gap += time.Duration(smoothing * float64(time.Since(began)-w.gap))
	}
	return n, next, err
}

// settle ends the wait of a Read that has read n bytes, and the search. A Read that has failed
// waits for the search.
func (w *Watch[S]) settle(n int) Found[S] {
	w.mu.Lock()
	s := w.search
	if s == nil || n > 0 {
		w.waiting = false
	}
	w.mu.Unlock()
	if s == nil {
		return Found[S]{}
	}
	if n > 0 || w.ctx.Err() != nil {
		s.cancel()
	}
	<-s.done
	s.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting, w.search = false, nil
	return s.found
}

// replace searches another source. The timer runs it in a goroutine that the running Read waits
// for.
func (w *Watch[S]) replace() {
	w.mu.Lock()
	if !w.waiting || w.search != nil || time.Now().Before(w.due) { // the timer belongs to an earlier Read
		w.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	s := &search[S]{cancel: cancel, done: make(chan struct{})}
	w.search = s
	w.mu.Unlock()
	defer close(s.done)
	source, err := w.find(ctx)
	if err != nil {
		return
	}
	w.mu.Lock()
	first := w.waiting
	w.mu.Unlock()
	if !first {
		w.o.Drop(source)
		return
	}
	s.found = Found[S]{source, true}
	w.o.Stop()
}

// find calls Options.Find and turns a panic into an error.
func (w *Watch[S]) find(ctx context.Context) (source S, err error) {
	defer panics.ToError(&err, "looking for another source")
	return w.o.Find(ctx)
}
