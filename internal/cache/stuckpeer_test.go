package cache

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// stuckPeer is a fleet whose other gateway accepts requests, but is stuck: it sends no head, or a
// head and the first bytes.
type stuckPeer struct {
	alone
	o    *origin
	next bool // the other gateway is not the owner, but the next in rank
	head bool
	sent []byte
}

var _ Fleet = stuckPeer{}

func (p stuckPeer) Rank(string, int) []string {
	if p.next {
		return []string{"", "peer"}
	}
	return []string{"peer", ""}
}

func (p stuckPeer) Open(ctx context.Context, _ string, r PeerRequest) (Meta, io.ReadCloser, error) {
	if !p.head {
		return Meta{}, nil, sendNothing(ctx, r.Idle)
	}
	rest := p.sent[min(r.Offset, int64(len(p.sent))):]
	return Meta{Version: p.o.v, Checked: time.Now()}, &stuckBody{ctx, r.Idle, rest}, nil
}

func (p stuckPeer) AcquireLease(context.Context, string, bool) (context.Context, func(), error) {
	return context.Background(), func() {}, nil
}

func (p stuckPeer) Silence(string) (silent, usual time.Duration) { return 0, 0 }

// sendNothing waits for limit, and returns the error for a gateway that has sent nothing meanwhile.
func sendNothing(ctx context.Context, limit time.Duration) error {
	select {
	case <-time.After(limit):
		return ErrUnreachable
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stuckBody sends some bytes, and then nothing.
type stuckBody struct {
	ctx   context.Context
	limit time.Duration
	rest  []byte
}

func (b *stuckBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, sendNothing(b.ctx, b.limit)
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (*stuckBody) Close() error { return nil }

// TestStuckPeer: a fill gives up a peer that accepts the request and sends no head, or stops within
// the body. The bytes that have arrived are kept, and the rest comes from the storage.
func TestStuckPeer(t *testing.T) {
	for name, test := range map[string]struct {
		peer  stuckPeer
		limit time.Duration
		slot  bool // it is verified first
	}{
		"no head":   {peer: stuckPeer{}, limit: maxPeerIdle + second},
		"no body":   {peer: stuckPeer{head: true}, limit: maxPeerIdle + second},
		"in a body": {peer: stuckPeer{head: true, sent: make([]byte, 1000)}, limit: 2*maxPeerIdle + second},
		"no copy":   {peer: stuckPeer{head: true, next: true}, limit: maxPeerIdle + second},
		"in the middle of a copy": {peer: stuckPeer{head: true, next: true, sent: make([]byte, 1000)},
			limit: maxPeerIdle + second},
		"no body of a slot": {peer: stuckPeer{head: true}, limit: maxPeerIdle + 5*second, slot: true},
	} {
		bubble(t, name, func(t *testing.T) {
			o, options := newSlot(64 << 10)
			if !test.slot {
				o, options = newOrigin(testFile(1), 1<<20), Options{}
			}
			test.peer.o = o
			copy(test.peer.sent, o.content)
			options.Fleet = test.peer
			c := newCache(t, options)
			ctx, cancel := context.WithTimeout(background, time.Hour)
			defer cancel()
			r := get(ctx, c, o)
			requireWhole(t, o, r)
			require.Less(t, r.total, test.limit)
			require.EqualValues(t, 1, o.fetches.Load())
			require.EqualValues(t, len(o.content)-len(test.peer.sent), o.served.Load())
			require.True(t, c.waiterRoom.all.tryAcquireBytes(c.waiterRoom.all.size), "all was given back")
		})
	}
}

// TestSlowStorageBehindPeer: a fill does not give up an owner that waits for a slow storage. The
// storage sends the content once, also for a slot, whose bytes arrive together at the end.
func TestSlowStorageBehindPeer(t *testing.T) {
	for name, verifyFirst := range map[string]bool{"file": false, "slot": true} {
		bubble(t, name, func(t *testing.T) {
			o, options := newSlot(2*SegmentSize - 1)
			if !verifyFirst {
				options.VerifyFirst = nil
			}
			o.first, o.whole = 20*second, 4*time.Minute // of each segment: 17 KiB/s
			list := gateways(t, newFleet(), 3, options)
			for _, r := range manyClients(list, o, 6) {
				requireWhole(t, o, r)
			}
			synctest.Wait()
			require.EqualValues(t, len(o.content), o.served.Load())
		})
	}
}
