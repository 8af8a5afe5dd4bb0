package httpserver

import (
	"strings"
	"sync"
)

// waits bounds the requests that wait for the first bytes from other hosts: to three quarters of
// the connections, and for one source to half of the connections. So a source without replies
// cannot take all connections.
type waits struct {
	max, maxPerSource int

	mu       sync.Mutex // guards the fields below
	total    int
	bySource map[string]*int // waiting requests by source
}

func newWaits(connections int) *waits {
	return &waits{max: max(1, connections*3/4), maxPerSource: max(1, connections/2), bySource: make(map[string]*int)}
}

// addWait counts a request that waits for source, until remove; false if too many wait. source may
// be a part of the request's bytes: addWait copies it, since other requests wait for the same
// source later.
func (w *waits) addWait(source string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.bySource[source]
	if w.total >= w.max || n != nil && *n >= w.maxPerSource {
		return false
	}
	if n == nil {
		n = new(int)
		w.bySource[strings.Clone(source)] = n
	}
	w.total++
	*n++
	return true
}

func (w *waits) remove(source string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.bySource[source]
	w.total--
	if *n--; *n == 0 {
		delete(w.bySource, source)
	}
}
