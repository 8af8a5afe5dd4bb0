package fleet

import (
	"context"
	"errors"
	"math"
	"time"

	"fastdfs-gateway/internal/cache"
)

// This file has the ends of a Fleet:
//
//	Close              the process ends
//	HandOver, Close    another process goes on under the name of this gateway
//	Retire, Leave      another Fleet of this process does, perhaps with another Redis or secret

// Close takes this gateway out of the list of those that are registered, ends what runs in the
// background and waits for it. Leases that are still held expire, and answers to peers are cut.
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
		_, _ = f.unregister(context.Background(), f.name(), "") // else it is forgotten after a while
	}
	f.transport.CloseIdleConnections()
	return errors.Join(f.server.Close(), f.locks.Close(), f.waiting.Close(), f.rdb.Close())
}

// HandOver leaves the name of this gateway, and the log of purges, to another process that has the
// same name from now on. This one neither renews its record nor takes it out at the end; what is
// purged reaches it by other ways. Peers are told to connect anew; running answers to them go on
// until StopPeers.
func (f *Fleet) HandOver() {
	f.handedOver.Store(true)
	f.endBeat()
	f.running.Wait()
	f.StopAccepting()
}

// StopAccepting closes the listener of ServePeers, and tells peers to connect anew. Running answers
// to them go on until StopPeers.
func (f *Fleet) StopAccepting() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = f.server.Shutdown(ended) // it does not wait
}

// leaving is added to the name of a retired Fleet.
const leaving = " (leaving)"

// name is the name under which this Fleet is registered.
func (f *Fleet) name() string {
	if f.retired.Load() {
		return f.o.Name[:min(len(f.o.Name), maxName-len(leaving))] + leaving
	}
	return f.o.Name
}

// Retire leaves the name of this gateway, and the number beside its disk tier, to another Fleet of
// the process. This one is no member any more: it owns no entry. Until Leave it applies purges, and
// purges wait for it, under a name of its own.
//
// It returns the fence of the last purge that it has applied; false when Redis cannot be asked
// whether there are later ones.
func (f *Fleet) Retire() (applied int64, ok bool) {
	l := *f.local.Load()
	l.Store = nil
	f.local.Store(&l)
	f.retired.Store(true)
	began := time.Now()
	if !f.catchUp(f.life, catchUpTime, func() bool { return f.logRead.Load().at.After(began) }) {
		return 0, false
	}
	_, err := f.unregister(f.life, f.o.Name, "")
	return f.applied.Load(), err == nil
}

// Leave ends a retired Fleet, which is to be closed then. It waits until the leases, and the
// answers to and from peers, have ended, or ctx has; with stay it waits for ctx, the time in which
// the other gateways leave this Redis too. An error means that there may be purges that this
// gateway has not applied.
func (f *Fleet) Leave(ctx context.Context, stay bool) error {
	_ = f.uses.Acquire(ctx, math.MaxInt64) // leases that are held on expire, answers of peers end by themselves
	_ = f.answers.Acquire(ctx, math.MaxInt64)
	if stay {
		<-ctx.Done()
	}
	_ = f.purging.Acquire(f.life, math.MaxInt64) // a purge does not take long
	f.endBeat()
	f.running.Wait()
	// What is purged later does not count on this gateway.
	ctx, cancel := context.WithTimeout(f.life, catchUpTime)
	defer cancel()
	for {
		if f.breaker.isOpen() {
			return cache.ErrFleetDown
		}
		if err := f.sync(ctx); err != nil {
			return err
		}
		if left, err := f.unregister(ctx, f.name(), f.applied.Load()); left || err != nil {
			return err
		}
	}
}

// unregister takes a name out of the list of gateways. applied is the fence of the last purge that
// was applied: when there are later ones, the name stays, and the result is false; "" = whatever
// there is.
func (f *Fleet) unregister(ctx context.Context, name string, applied any) (gone bool, err error) {
	keys := []string{f.key("purges"), f.key("purges:base"), f.key("gateways"), f.key("obeyed"), f.key("members")}
	err = f.ask(ctx, "leave the list of gateways", func(ctx context.Context) (err error) {
		gone, err = leaveScript.Run(ctx, f.rdb, keys, name, applied, f.key("purged")).Bool()
		return err
	})
	return gone, err
}
