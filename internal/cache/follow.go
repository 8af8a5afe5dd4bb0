package cache

import (
	"context"
	"errors"
	"sync"
	"time"
)

// How long another gateway may send nothing.
const (
	peerStall = 3 * time.Second // while nothing says that it is alive
	freeStall = time.Second     // after its lease has become free: it has finished, or it is gone
)

// errStalled: another gateway has sent nothing for too long.
var errStalled = errors.New("the other gateway sends nothing")

// located is another gateway that has the segment; empty when there is none. Where the version is not known yet the source is asked
// for it: it decides whether the file is still there.
func (c *Cache) located(f *flight, src Source, lease Lease) (string, error) {
	l, ok, err := c.o.Fleet.Location(f.ctx, f.key.String())
	if err != nil || !ok || l.Holder == "" {
		return "", nil
	}
	_, _, v, known := f.progress()
	if !known {
		ctx, cancel := context.WithTimeout(f.ctx, askTimeout)
		defer cancel()
		began := time.Now()
		c.n.stats.Add(1)
		if v, err = src.Stat(ctx); err == nil {
			err = c.learned(f, v, time.Since(began), lease)
		}
		if err != nil {
			return "", c.absent(f, err, lease)
		}
	}
	if l.Version != v {
		return "", nil
	}
	return l.Holder, nil
}

// copyFromPeer fetches what is missing from another gateway. leased tells that it has the lease, which shows that it lives even while
// it sends nothing.
func (c *Cache) copyFromPeer(f *flight, holder string, leased bool) error {
	ctx, cancel := context.WithCancelCause(f.ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	watch.Go(func() { c.watch(ctx, cancel, f, leased) })
	have, _, v, known := f.progress()
	want := &v
	if !known {
		want = nil
	}
	f.setFrom(FromPeer)
	f.peer = ""
	if have == 0 {
		f.peer = holder
	}
	c.n.peerFetches.Add(1)
	got, body, err := c.o.Fleet.OpenPeer(ctx, holder, f.key, want, have)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // all that counts was read
	f.hearsay = f.hearsay || !known
	if err = f.learn(got); err == nil {
		err = c.reserve(f)
	}
	if err == nil {
		err = f.copyFrom(body, func(n int) { c.n.peerBytes.Add(uint64(n)) })
	}
	return err
}

// confirm records the version that another gateway has told. When that is not what the gateways know, the file was purged or has
// changed while it was read there: the other one may not have learned of it yet, and nothing is kept of what it gave.
func (c *Cache) confirm(f *flight) {
	if !f.hearsay {
		return
	}
	_, _, v, _ := f.progress()
	m, ok, err := c.o.Fleet.Meta(c.life, f.key.File)
	switch {
	case err != nil: // each gateway is on its own now
		m = Meta{Version: v, Checked: time.Now()}
	case !ok, m.Gone, m.Version != v:
		f.doom()
		return
	}
	c.keepOf(f, m)
}

// watch gives a peer up that sends nothing.
func (c *Cache) watch(ctx context.Context, stop context.CancelCauseFunc, f *flight, leased bool) {
	stall := peerStall
	if leased && c.o.Fleet.Wait(ctx, f.key.String()) == nil {
		stall = freeStall
	}
	for last := int64(-1); ; {
		have, _, _, _ := f.progress()
		if have == last {
			stop(errStalled)
			return
		}
		last = have
		timer := time.NewTimer(stall)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// follow reads from the gateway that has the lease, and where that does not work waits for the lease to become free.
func (c *Cache) follow(f *flight, src Source, holder string, patience time.Duration) error {
	f.setRole(following)
	before, _, _, _ := f.progress()
	if holder != "" {
		err := c.copyFromPeer(f, holder, true)
		if err == nil {
			return c.finish(f, src, nil)
		}
		if after, _, _, _ := f.progress(); after > before {
			return errAgain // perhaps another one has taken over already
		}
		c.o.Logger.Info("cannot read from the gateway that fetches a segment", "segment", f.key.String(), "gateway", holder, "err", err)
	}
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	_ = c.o.Fleet.Wait(ctx, f.key.String()) // whatever comes of it, Lead tells
	return errAgain
}
