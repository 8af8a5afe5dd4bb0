// Package stall replaces the source of a download that sends nothing in the middle of a body.
//
//	w := stall.New(ctx, stall.Options[*source]{Read: src.Read, Find: connectElsewhere, Stop: src.cancel, Drop: (*source).close})
//	n, next, err := w.Read(p) // next.OK: nothing was read, and next.Source goes on in its place
//
// While a Read waits for longer than the limit, another source is looked for beside it. The first
// of the two to give something counts: bytes of the watched source end the search, and a source
// that is found ends the Read.
package stall

import (
	"context"
	"sync"
	"time"

	"fastdfs-gateway/internal/panics"
)

// Floor is the shortest wait after which another source is looked for.
const Floor = 2 * time.Second

const (
	usualGaps = 4   // a source may take this many times its usual gap
	smoothing = 0.2 // weight of the newest gap in the mean
)

// Options say what is watched, and what replaces it.
type Options[S any] struct {
	Floor time.Duration             // the shortest limit; default Floor
	Read  func([]byte) (int, error) // reads from the watched source
	// Find looks for another source that goes on at the next byte. It runs while Read does, and
	// Read has read nothing when Find returns without an error. Its context ends when the search
	// has become pointless; the source that it found must not depend on that context.
	Find func(context.Context) (S, error)
	Stop func()  // ends the running Read; it may be called when that has ended
	Drop func(S) // gives back a source that was found too late
}

// Found is another source, if OK.
type Found[S any] struct {
	Source S
	OK     bool
}

// Watch watches the reads of one source. Only one goroutine may use it.
type Watch[S any] struct {
	ctx   context.Context // of the download, whose part the Watch is
	o     Options[S]
	gap   time.Duration // usual time until a read gives something
	timer *time.Timer   // nil before the first Read

	mu      sync.Mutex // guards what follows
	waiting bool       // a Read waits for its first byte
	due     time.Time  // when another source is looked for
	search  *search[S] // nil while none runs
}

// search is a run of Find.
type search[S any] struct {
	cancel context.CancelFunc
	done   chan struct{} // closed at its end
	found  Found[S]      // set before done is closed
}

// New returns a Watch for the downloads of ctx. It holds nothing that has to be given back.
func New[S any](ctx context.Context, o Options[S]) *Watch[S] {
	if o.Floor <= 0 {
		o.Floor = Floor
	}
	return &Watch[S]{ctx: ctx, o: o}
}

// Read reads into p. Where another source was found before a byte came, n is 0 and err is nil, and
// what the watched source has still written to p does not count. Without another source it waits as
// long as Options.Read does.
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

// settle ends the wait of a Read that has given n bytes, and the search beside it. A Read that has
// failed waits for the search.
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

// replace looks for another source. It is the timer's, in a goroutine that the running Read waits for.
func (w *Watch[S]) replace() {
	w.mu.Lock()
	if !w.waiting || w.search != nil || time.Now().Before(w.due) { // the timer was that of an earlier Read
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

// find is Options.Find; a panic in it is an error.
func (w *Watch[S]) find(ctx context.Context) (source S, err error) {
	defer panics.ToError(&err, "looking for another source")
	return w.o.Find(ctx)
}
