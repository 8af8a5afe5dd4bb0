package http2server

import (
	"sync"

	"fastdfs-gateway/internal/process/panics"
)

// workers runs tasks on goroutines that it reuses: the stack of a new goroutine would have to grow
// for each request.
type workers struct {
	mu      sync.Mutex  // guards the fields below
	idle    []chan task // one for each goroutine that waits; the last one was used last
	least   int         // least length of idle since trim
	stopped bool
}

type task interface{ run() }

// start runs a task on an idle goroutine, or on a new one.
func (w *workers) start(t task) {
	w.mu.Lock()
	n := len(w.idle)
	if n == 0 {
		w.mu.Unlock()
		go w.work(make(chan task, 1), t)
		return
	}
	tasks := w.idle[n-1]
	w.idle = w.idle[:n-1]
	w.least = min(w.least, n-1)
	w.mu.Unlock()
	tasks <- t // the buffer is empty
}

// work runs a task, and then others until tasks is closed.
func (w *workers) work(tasks chan task, t task) {
	for t != nil {
		run(t)
		w.mu.Lock()
		if w.stopped {
			w.mu.Unlock()
			return
		}
		w.idle = append(w.idle, tasks)
		w.mu.Unlock()
		t = <-tasks
	}
}

// run runs a task. A panic, which is a bug, ends neither the goroutine nor the process.
func run(t task) {
	defer panics.Contain("serving HTTP/2")
	t.run()
}

// trim ends the goroutines that were idle since the last call.
func (w *workers) trim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endIdle(w.least)
	w.least = len(w.idle)
}

// endIdle ends the n goroutines that were idle for the longest time.
func (w *workers) endIdle(n int) {
	for _, tasks := range w.idle[:n] {
		close(tasks)
	}
	rest := copy(w.idle, w.idle[n:])
	clear(w.idle[rest:])
	w.idle = w.idle[:rest]
}

// stop ends all goroutines as soon as they are idle.
func (w *workers) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.endIdle(len(w.idle))
}
