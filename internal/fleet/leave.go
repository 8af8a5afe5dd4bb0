package fleet

import (
	"context"
	"errors"
)

// This file has the ends of a Fleet:
//
//	Close                     the process ends
//	HandOver, Leave, Close    another process goes on, usually under the name of this gateway

// Close takes this gateway out of the list of those that are registered, ends what runs in the
// background and waits for it. Leases that are still held expire, and responses to peers are cut.
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

// HandOver leaves the name of this gateway, and the log of purges, to another process that has the
// same name from now on. This one neither renews its record nor takes it out at the end; purges
// reach it by other ways. The listener of ServePeers is closed, and peers are told to connect anew;
// running responses to them go on until StopPeers. HandOver waits for a purge that is being applied
// until ctx ends. Start comes before it.
func (f *Fleet) HandOver(ctx context.Context) {
	f.handedOver.Store(true)
	f.endBeat()
	select {
	case <-f.loopEnded:
	case <-ctx.Done(): // a disk hangs
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = f.server.Shutdown(ended) // it does not wait
}

// Leave takes this gateway out of the list, unless another process has registered its name since
// HandOver: a new process may have another name, or another Redis. While a purge is still being
// applied it does nothing: the name expires.
func (f *Fleet) Leave() {
	select {
	case <-f.loopEnded:
	default:
		return
	}
	if f.lastSeen != "" { // else it was never registered
		f.unregister(f.lastSeen)
	}
}

// unregister takes this gateway out of the list; with lastSeen only where it was last seen then.
// Without Redis it is forgotten after a while.
func (f *Fleet) unregister(lastSeen string) {
	name := f.Name()
	if name == unknownName {
		return // it was never registered
	}
	_ = f.ask(context.Background(), "leave the list of gateways", func(ctx context.Context) error {
		return f.remove(ctx, name, lastSeen)
	})
}

// remove takes a name out of the list, as unregister does.
func (f *Fleet) remove(ctx context.Context, name, lastSeen string) error {
	keys := []string{f.key("gateways"), f.key("applied"), f.key("members")}
	return leaveScript.Run(ctx, f.rdb, keys, name, lastSeen, f.key("purged")).Err()
}
