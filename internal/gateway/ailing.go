package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage"
)

// ailing remembers which web servers have failed lately, so that they are asked last. A server is tried again after a pause that
// doubles with each failure.
type ailing struct {
	mu  sync.Mutex // guards bad
	bad map[storage.Server]failing
	// strangers is how many of them are strangers; these get no more than half of the room.
	strangers int
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
	if errors.Is(err, context.Canceled) || errors.Is(err, fdfs.ErrFull) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	f, known := a.bad[server]
	if err == nil || errors.Is(err, storage.ErrNotFound) {
		if known {
			a.forget(server)
		}
		return
	}
	if !known {
		if !a.hasRoom(server.Stranger) {
			a.sweep(time.Now())
		}
		if !a.hasRoom(server.Stranger) {
			return
		}
		a.strangers += btoi(server.Stranger)
	}
	f.pause = min(max(2*f.pause, firstPause), maxPause)
	f.until = time.Now().Add(f.pause)
	if a.bad == nil {
		a.bad = map[storage.Server]failing{}
	}
	a.bad[server] = f
}

// hasRoom tells whether one more server can be remembered. It is called with mu held.
func (a *ailing) hasRoom(stranger bool) bool {
	if stranger {
		return a.strangers < maxAiling/2
	}
	return len(a.bad)-a.strangers < maxAiling/2
}

// sweep forgets the servers whose pause is over for as long as it was. It is called with mu held.
func (a *ailing) sweep(now time.Time) {
	for server, f := range a.bad {
		if now.After(f.until.Add(f.pause)) {
			a.forget(server)
		}
	}
}

// forget is called with mu held, for a server that is remembered.
func (a *ailing) forget(server storage.Server) {
	delete(a.bad, server)
	a.strangers -= btoi(server.Stranger)
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
