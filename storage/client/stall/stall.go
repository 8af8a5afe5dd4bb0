// Package stall replaces the source of a download if it stops sending, or sends next to nothing.
//
//	w := stall.New(ctx, stall.Options[*source]{
//		Read: src.Read, Find: findOther, Stop: src.cancel, Drop: (*source).close,
//	})
//	n, next, err := w.Read(p) // next.OK: nothing was read, continue with next.Source
//
// If a Read takes longer than a limit, Find searches for another source concurrently. The first
// success counts: bytes of the current source end the search, and a found source ends the Read.
//
// If a source sends less than LowRate during Window, the next Read first searches for another
// source, and continues with the current one if there is none. A source that sends less than
// MinRate for three windows, and cannot be replaced, fails with ErrSlow. Only the duration of Reads
// counts, so a reader that pauses makes no source slow.
package stall

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/fdfs/backoff"
	"fastdfs-gateway/internal/process/panics"
)

// Floor is the default of Options.Floor.
const Floor = 2 * time.Second

// Rates of a source in bytes per second, measured in windows of waiting.
const (
	LowRate = 16 << 10 // below it, another source is better
	MinRate = 1 << 10  // below it, having no source is better: as with the default min_send_rate for clients
	Window  = 10 * time.Second
	// failAfter is the number of windows below MinRate after which a source fails: together as long
	// as the usual network timeout, for which a source may pause.
	failAfter = 3
)

// ErrSlow is the error of a source that sends less than MinRate, where no other one can be found.
var ErrSlow = fmt.Errorf("%w: the source sends next to nothing", os.ErrDeadlineExceeded)

// usualGaps is the limit of a Read, in mean durations of Reads (Watch.gap).
const usualGaps = 4

// A timer that fires more than late after its time shows that this process did not run: bytes may
// have come meanwhile, and Read gets grace to return them.
const (
	late  = 100 * time.Millisecond
	grace = 100 * time.Millisecond
)

// Options are the functions of the current source.
type Options[S any] struct {
	Floor  time.Duration             // shortest limit; default Floor
	Window time.Duration             // of waiting in which rates are measured; default Window
	Read   func([]byte) (int, error) // reads from the current source
	// Skipped returns the number of bytes that the last Read has received and not returned; nil =
	// there are none. They count as bytes of the source.
	Skipped func() int64
	// Find finds another source that continues with the next byte. It runs concurrently with Read,
	// which has read nothing if Find's source is used. Its context is cancelled when the search is
	// not needed any more; else the context lasts as long as the download, and the source may
	// depend on it.
	Find func(context.Context) (S, error)
	Stop func()  // ends the running Read; may be called after its end
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
	due   time.Time     // time at which the timer fires

	waited  time.Duration // duration of the Reads of the present window
	bytes   int64         // received in the present window
	slow    bool          // the last window was below LowRate
	dripped time.Duration // duration of the last windows, all of which were below MinRate

	decided atomic.Bool             // of the running Read: bytes have arrived, or another source was found
	once    sync.Once               // guards the making of begun and found: few sources need them
	begun   chan context.CancelFunc // ends the search that the timer has begun
	found   chan Found[S]           // result of this search
}

// New returns a Watch for downloads with ctx. It needs no closing.
func New[S any](ctx context.Context, o Options[S]) *Watch[S] {
	if o.Floor <= 0 {
		o.Floor = Floor
	}
	if o.Window <= 0 {
		o.Window = Window
	}
	if o.Skipped == nil {
		o.Skipped = func() int64 { return 0 }
	}
	return &Watch[S]{ctx: ctx, o: o}
}

// makeChannels makes begun and found, unless they exist.
func (w *Watch[S]) makeChannels() {
	w.once.Do(func() {
		w.begun, w.found = make(chan context.CancelFunc, 1), make(chan Found[S], 1)
	})
}

// Read reads into p. If another source was found before a byte arrived, n is 0 and err is nil, and
// the content of p is undefined. Otherwise Read takes as long as Options.Read; if Options.Read
// fails during a search, Read takes as long as the search. The error is ErrSlow for a slow source
// that cannot be replaced.
func (w *Watch[S]) Read(p []byte) (n int, next Found[S], err error) {
	if w.slow {
		w.slow = false
		next, err = w.replace()
		switch {
		case err == nil:
			return 0, next, nil
		case w.dripped >= failAfter*w.o.Window:
			return 0, next, fmt.Errorf("%w: %w", ErrSlow, err)
		}
	}
	w.decided.Store(false)
	began := time.Now()
	limit := max(w.o.Floor, usualGaps*w.gap)
	w.due = began.Add(limit)
	if w.timer == nil {
		w.timer = time.AfterFunc(limit, w.search)
	} else {
		w.timer.Reset(limit)
	}
	n, err = w.o.Read(p)
	received := int64(n) + w.o.Skipped()
	if !w.timer.Stop() { // a search has begun
		w.makeChannels()
		cancel := <-w.begun
		if received > 0 && w.decided.CompareAndSwap(false, true) {
			cancel()
		}
		if next = <-w.found; next.OK {
			return 0, next, nil
		}
		cancel()
	}
	took := time.Since(began)
	if received > 0 {
		w.gap = backoff.Smooth(w.gap, took)
	}
	w.measure(received, took)
	return n, next, err
}

// measure adds a read to the present window, and computes the rate of the source at the end of the
// window.
func (w *Watch[S]) measure(received int64, took time.Duration) {
	w.waited, w.bytes = w.waited+took, w.bytes+received
	if w.waited >= w.o.Window {
		rate := float64(w.bytes) / w.waited.Seconds()
		w.slow = rate < LowRate
		if w.dripped += w.waited; rate >= MinRate {
			w.dripped = 0
		}
		w.waited, w.bytes = 0, 0
	}
}

// replace finds another source while no Read of the current one is running.
func (w *Watch[S]) replace() (next Found[S], err error) {
	defer panics.ToError(&err, "replacing a source")
	source, err := w.o.Find(w.ctx)
	return Found[S]{source, err == nil}, err
}

// search finds another source. The running Read waits for the end of the search, also after a panic
// in one of the functions of Options.
func (w *Watch[S]) search() {
	ctx, cancel := context.WithCancel(w.ctx)
	w.makeChannels()
	w.begun <- cancel
	var next Found[S]
	defer func() { w.found <- next }()
	defer panics.Contain("replacing a source")
	if time.Since(w.due) > late {
		select {
		case <-time.After(grace):
		case <-ctx.Done():
			return
		}
	}
	if source, err := w.o.Find(ctx); err == nil {
		if w.decided.CompareAndSwap(false, true) {
			next = Found[S]{source, true}
			w.o.Stop()
		} else {
			w.o.Drop(source)
		}
	}
}
