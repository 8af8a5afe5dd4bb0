package cache

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// fleet holds the gateways of a test and their shared state.
type fleet struct {
	ttl time.Duration

	mu        sync.Mutex
	names     []string // in order of rank, the same for every key
	caches    map[string]*Cache
	leases    map[string]*lease
	down      bool
	cut       map[string]bool // gateways without connections to others
	dead      map[string]bool
	mute      map[string]time.Duration // gateways that show no sign of life for that time after a request
	late      map[string]time.Duration // gateways that respond after that time, and show signs of life
	usual     time.Duration            // silence that is usual for a living gateway, see Silence
	noPeers   bool
	calls     int64 // of AcquireLease and Wait
	leadCalls int64
	firstLed  map[string]bool          // gateways that have requested a lease as the first in rank
	trusted   map[string]time.Duration // age up to which a gateway trusts metadata; none = any
}

func newFleet() *fleet {
	return &fleet{ttl: 10 * time.Second, caches: map[string]*Cache{}, leases: map[string]*lease{},
		firstLed: map[string]bool{},
		cut:      map[string]bool{}, dead: map[string]bool{},
		mute: map[string]time.Duration{}, late: map[string]time.Duration{}}
}

func (f *fleet) do(work func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	work()
}

// member is the Fleet of one gateway.
type member struct {
	f     *fleet
	name  string
	asked sync.Map // time of the first request to a mute gateway
}

var _ Fleet = (*member)(nil)

type lease struct {
	m      *member
	key    string
	ctx    context.Context
	cancel context.CancelFunc
	free   chan struct{} // closed when the lease ends
}

// enter counts a call, and returns its error. mu is held.
func (m *member) enter() error {
	m.f.calls++
	if m.f.down || m.f.dead[m.name] {
		return ErrFleetDown
	}
	return nil
}

func (m *member) Rank(_ string, n int) (ranked []string) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if m.f.noPeers {
		return nil
	}
	for _, name := range m.f.names[:min(n, len(m.f.names))] {
		if name == m.name {
			name = ""
		}
		ranked = append(ranked, name)
	}
	return ranked
}

func (m *member) AcquireLease(_ context.Context, key string, first bool) (context.Context, func(), error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	m.f.leadCalls++
	if first {
		m.f.firstLed[m.name] = true
	}
	if err := m.enter(); err != nil {
		return nil, nil, err
	}
	if l := m.f.leases[key]; l != nil {
		held := &Held{Wait: func(ctx context.Context) error { return m.wait(ctx, key) }}
		if !m.f.noPeers {
			held.Holder = l.m.name
		}
		return nil, nil, held
	}
	l := &lease{m: m, key: key, free: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	m.f.leases[key] = l
	return l.ctx, func() { m.f.do(func() { m.f.end(l) }) }, nil
}

func (m *member) TrustedSince(now time.Time) (since time.Time) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if age, ok := m.f.trusted[m.name]; ok {
		since = now.Add(-age)
	}
	return since
}

func (m *member) wait(ctx context.Context, key string) error {
	m.f.mu.Lock()
	err, l := m.enter(), m.f.leases[key]
	m.f.mu.Unlock()
	if err != nil || l == nil {
		return err
	}
	select {
	case <-l.free:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reach returns an error if this gateway cannot reach a peer.
func (m *member) reach(peer string) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if m.f.dead[peer] || m.f.cut[peer] || m.f.cut[m.name] {
		return fmt.Errorf("%w: connection refused", ErrUnreachable)
	}
	return nil
}

func (m *member) Open(ctx context.Context, peer string, r PeerRequest) (Meta, io.ReadCloser, error) {
	if err := m.reach(peer); err != nil {
		return Meta{}, nil, err
	}
	m.f.mu.Lock()
	c := m.f.caches[peer]
	mute, late := m.f.mute[peer], m.f.late[peer]
	m.f.mu.Unlock()
	if mute > 0 {
		m.asked.LoadOrStore(peer, time.Now())
	}
	if err := sleep(ctx, mute+late); err != nil {
		return Meta{}, nil, err
	}
	m.asked.Delete(peer)
	meta, s, err := c.PeerOpen(ctx, r)
	if err != nil || s == nil {
		return meta, nil, err
	}
	return meta, &wire{ReadCloser: s, reach: func() error { return m.reach(peer) }}, nil
}

// Silence implements Fleet.
func (m *member) Silence(peer string) (silent, usual time.Duration) {
	if asked, ok := m.asked.Load(peer); ok {
		silent = time.Since(asked.(time.Time))
	}
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	return silent, m.f.usual
}

// wire is a stream between two gateways.
type wire struct {
	io.ReadCloser
	reach func() error
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if reached := w.reach(); reached != nil {
		return 0, reached
	}
	return n, err
}

// end ends a lease. mu is held.
func (f *fleet) end(l *lease) {
	if f.leases[l.key] == l {
		delete(f.leases, l.key)
		close(l.free)
	}
	l.cancel()
}

// expire ends the leases of a gateway.
func (f *fleet) expire(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.leases {
		if l.m.name == name {
			f.end(l)
		}
	}
}

// kill ends a gateway as kill -9 does. Its leases stay until they expire.
func (f *fleet) kill(name string) {
	f.mu.Lock()
	f.dead[name] = true
	c := f.caches[name]
	f.mu.Unlock()
	_ = c.Close()
	time.AfterFunc(f.ttl, func() { f.expire(name) })
}

// alone is a Fleet without other gateways, which fakes embed.
type alone struct{}

func (alone) Rank(string, int) []string { return nil }

func (alone) Open(context.Context, string, PeerRequest) (Meta, io.ReadCloser, error) {
	return Meta{}, nil, ErrUnreachable
}

func (alone) Silence(string) (silent, usual time.Duration) { return 0, 0 }

func (alone) AcquireLease(context.Context, string, bool) (context.Context, func(), error) {
	return context.Background(), func() {}, nil
}

func (alone) TrustedSince(time.Time) time.Time { return time.Time{} }
