package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"fastdfs-gateway/storage"
)

// ailing remembers which web servers have failed lately, so that they are asked last. A server is tried again after a pause that
// doubles with each failure.
type ailing struct {
	mu  sync.Mutex // guards bad
	bad map[storage.Server]failing
}

type failing struct {
	pause time.Duration
	until time.Time
}

const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
	maxAiling  = 1024
)

// note tells how a server has done. What is no fault of the server does not count.
func (a *ailing) note(server storage.Server, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil || errors.Is(err, storage.ErrNotFound) {
		delete(a.bad, server)
		return
	}
	f, known := a.bad[server]
	if !known && len(a.bad) >= maxAiling {
		return
	}
	f.pause = min(max(2*f.pause, firstPause), maxPause)
	f.until = time.Now().Add(f.pause)
	if a.bad == nil {
		a.bad = map[storage.Server]failing{}
	}
	a.bad[server] = f
}

// last puts the servers that have failed behind the others; the order stays the same otherwise.
func (a *ailing) last(servers []storage.Server, now time.Time) []storage.Server {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.bad) == 0 {
		return servers
	}
	var good, bad []storage.Server
	for _, s := range servers {
		if now.Before(a.bad[s].until) {
			bad = append(bad, s)
		} else {
			good = append(good, s)
		}
	}
	return append(good, bad...)
}
