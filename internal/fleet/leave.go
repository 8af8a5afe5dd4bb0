package fleet

import (
	"context"
	"errors"
)

// The functions of this file end a Fleet:
//
//	Close                     the process ends
//	HandOver, Leave, Close    another process continues, usually with the name of this gateway

// Close removes this gateway from the list of registered gateways, unless HandOver was called, ends
// the background work and waits for its end. Leases that are still held expire, and responses to
// peers are aborted.
func (f *Fleet) Close() error {
	f.mu.Lock()
	was, registered := f.life.Err() != nil, f.started
	f.end()
	f.mu.Unlock()
	if was {
		return nil
	}
	f.running.Wait()
	if registered && !f.handedOver.Load() {
		f.unregister("")
	}
	f.transport.CloseIdleConnections()
	return errors.Join(f.server.Close(), f.locks.Close(), f.rdb.Close())
}

// HandOver passes the name of this gateway, and the log of purges, to another process, which has
// the same name from then on. This one neither renews its record nor removes it at the end; the
// other process passes purges on to it. The listener of ServePeers is closed, and peers get a
// GOAWAY, so they connect anew; running responses to them continue until StopPeers. HandOver waits
// for a purge that is being applied until ctx ends. The caller has called Start before.
func (f *Fleet) HandOver(ctx context.Context) {
	f.handedOver.Store(true)
	f.endBeat()
	select {
	case <-f.loopEnded:
	case <-ctx.Done(): // a disk hangs
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = f.server.Shutdown(ended) // without waiting
}

// Leave removes this gateway from the list, unless another process has registered its name since
// HandOver: a new process may have another name, or another Redis. While a purge is still being
// applied, Leave has no effect: the name expires.
func (f *Fleet) Leave() {
	select {
	case <-f.loopEnded:
	default:
		return
	}
	if f.lastSeen != "" { // otherwise this gateway was never registered
		f.unregister(f.lastSeen)
	}
}

// unregister removes this gateway from the list; with lastSeen only if that is its last heartbeat
// there. While Redis is unavailable the name expires.
func (f *Fleet) unregister(lastSeen string) {
	name := f.Name()
	if name == unknownName {
		return // this gateway was never registered
	}
	_ = f.ask(context.Background(), "leave the list of gateways", func(ctx context.Context) error {
		keys := []string{f.key("gateways"), f.key("applied"), f.key("members")}
		return leaveScript.Run(ctx, f.rdb, keys, name, lastSeen, f.key("purged")).Err()
	})
}
