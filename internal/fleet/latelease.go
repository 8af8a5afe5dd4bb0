package fleet

import (
	"context"
	"sync"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/process/panics"
)

// leaseRequest is a request to Redis for a lease. It runs in a goroutine of requestLease.
type leaseRequest struct {
	stop func() bool   // prevents the release at the end of the fill; false = too late; guarded by lateLeases.mu
	done chan struct{} // closed when the fields below are set
	lock *cachelock.Lock
	end  func() // releases the lease; nil without one
	err  error
}

// requestLease sends a request for a lease. It ends with ctx, and within Options.Timeout.
func (f *Fleet) requestLease(ctx context.Context, key string, self *identity) *leaseRequest {
	r := &leaseRequest{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer panics.ToError(&r.err, "taking a lease")
		r.lock, r.err = f.takeLease(ctx, key, self)
		if r.err == nil {
			r.end = f.hold(key, r.lock)
		}
	}()
	return r
}

// hasFailed reports whether the request has ended without a lease, or its lease has ended.
func (r *leaseRequest) hasFailed() bool {
	select {
	case <-r.done:
		return r.err != nil || r.lock.Context().Err() != nil
	default:
		return false
	}
}

// lateLeases are the requests for leases whose replies came too late for their fills. A fill
// continues without the lease then. A late lease is held until the fill ends, or its next attempt
// takes it: a gateway that cannot reach this one finds it held, and does not fetch the entry a
// second time.
type lateLeases struct {
	mu    sync.Mutex // guards byKey
	byKey map[string]*leaseRequest
}

// keep keeps a request, and so its lease, until ctx ends, unless take returns it before.
func (l *lateLeases) keep(ctx context.Context, key string, r *leaseRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byKey[key] = r // a former request belongs to a fill that a purge has replaced
	r.stop = context.AfterFunc(ctx, func() {
		l.drop(key, r)
		r.giveUp()
	})
}

// drop removes a request.
func (l *lateLeases) drop(key string, r *leaseRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey[key] == r {
		delete(l.byKey, key)
	}
}

// take removes and returns the kept request for the lease of a key; nil if there is none, it has
// failed, or its fill has ended.
func (l *lateLeases) take(key string) *leaseRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.byKey[key]
	if r == nil || r.hasFailed() || !r.stop() {
		return nil
	}
	delete(l.byKey, key)
	return r
}

// giveUp waits for the lease and releases it.
func (r *leaseRequest) giveUp() {
	defer panics.Contain("releasing a lease")
	<-r.done
	if r.end != nil {
		r.end()
	}
}
