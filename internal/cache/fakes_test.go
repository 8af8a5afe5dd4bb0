package cache

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/cachetest"
	"fastdfs-gateway/internal/checksum"
	"fastdfs-gateway/internal/eventually"
)

var errOrigin = errors.New("the storage is broken")

// origin is the storages. Its behaviour is set before use, or by way of its mutex.
type origin struct {
	first    time.Duration // before the first byte of an answer
	whole    time.Duration // for all bytes of a segment
	file     string
	negative time.Duration
	name     string // of the storage; default "storage"
	unlisted bool

	mu      sync.Mutex
	content []byte // nil = no such file
	v       Version
	down    bool
	breakAt func(fetch int64, served int64) bool // whether a fetch breaks after these bytes

	// order are the storages in the order of their health, which a test may change; the first that
	// is not excluded is asked. Those in damaged have other content.
	order    []string
	damaged  map[string][]byte
	excluded map[string]bool

	stats, fetches, served, running, most atomic.Int64
	rechecks                              atomic.Int64
}

func newOrigin(file string, size int64) *origin {
	o := noFile(file)
	o.content = cachetest.Content(file, size)
	o.v = cachetest.Version(o.content)
	return o
}

// noFile is the storages without the file.
func noFile(file string) *origin {
	o := &origin{file: file, order: []string{"storage"}, damaged: map[string][]byte{}, excluded: map[string]bool{}}
	origins.Store(file, o)
	return o
}

// origins has the newest origin of each file, for gateways that others ask for it.
var origins sync.Map

func originOf(file string) *origin {
	o, _ := origins.Load(file)
	return o.(*origin)
}

var _ Source = (*origin)(nil)

func (o *origin) Name() string { return cmp.Or(o.name, "storage") }

// Unlisted implements Source.
func (o *origin) Unlisted() bool { return o.unlisted }

// NegativeTTL implements Source.
func (o *origin) NegativeTTL() time.Duration { return o.negative }

// Exclude implements Source.
func (o *origin) Exclude(server string) { o.set(func() { o.excluded[server] = true }) }

// asked is the storage that is asked next, and its content. mu is held.
func (o *origin) asked() (server string, content []byte) {
	server = o.order[0]
	for _, other := range o.order {
		if !o.excluded[other] {
			server = other
			break
		}
	}
	return server, o.contentOf(server)
}

// contentOf is the content of one storage. mu is held.
func (o *origin) contentOf(server string) []byte {
	if wrong, ok := o.damaged[server]; ok {
		return wrong
	}
	return o.content
}

// Recheck implements Source: it reads from all other storages, or else from the only one.
func (o *origin) Recheck(_ context.Context, v Version, sum checksum.Sum, senders []string) (checksum.Sum, error) {
	o.rechecks.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, server := range o.order {
		if slices.Contains(senders, server) && len(o.order) > 1 {
			continue
		}
		var again checksum.Sum
		_, _ = again.Write(o.contentOf(server))
		if again.Standard() == sum.Standard() {
			return again, nil
		}
		if !again.Matches(v.CRC32) {
			continue
		}
		for _, sender := range senders {
			if !bytes.Equal(o.contentOf(sender), o.contentOf(server)) {
				o.excluded[sender] = true
			}
		}
		break
	}
	return checksum.Sum{}, ErrCorrupt
}

func (o *origin) set(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

// now is what the storages have at this moment.
func (o *origin) now() ([]byte, Version, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.down:
		return nil, Version{}, errOrigin
	case o.content == nil:
		return nil, Version{}, ErrNotFound
	}
	return o.content, o.v, nil
}

func (o *origin) Stat(ctx context.Context) (Version, error) {
	o.stats.Add(1)
	if err := sleep(ctx, o.first); err != nil {
		return Version{}, err
	}
	_, v, err := o.now()
	return v, err
}

func (o *origin) Fetch(ctx context.Context, want *Version, offset, length int64) (Version, io.ReadCloser, error) {
	n := o.fetches.Add(1)
	if err := sleep(ctx, o.first); err != nil {
		return Version{}, nil, err
	}
	content, v, err := o.now()
	if err != nil {
		return Version{}, nil, err
	}
	if want != nil && *want != v {
		return Version{}, nil, ErrChanged
	}
	from := min(offset, int64(len(content)))
	o.most.Store(max(o.most.Load(), o.running.Add(1)))
	o.mu.Lock()
	defer o.mu.Unlock()
	server, content := o.asked()
	return v, &body{o: o, ctx: ctx, fetch: n, rest: content[from:min(from+length, int64(len(content)))],
		server: server}, nil
}

// body is an answer: bytes come in 64 pieces.
type body struct {
	o      *origin
	ctx    context.Context
	fetch  int64
	rest   []byte
	served int64
	server string
}

// Senders implements Senders.
func (b *body) Senders() []string { return []string{b.server} }

func (b *body) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	b.o.mu.Lock()
	broken := b.o.breakAt != nil && b.o.breakAt(b.fetch, b.served)
	b.o.mu.Unlock()
	if broken {
		return 0, errOrigin
	}
	if err := sleep(b.ctx, b.o.whole/64); err != nil {
		return 0, err
	}
	n := copy(p[:min(len(p), SegmentSize/64)], b.rest)
	b.rest = b.rest[n:]
	b.served += int64(n)
	b.o.served.Add(int64(n))
	return n, nil
}

func (b *body) Close() error {
	b.o.running.Add(-1)
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fleet is the gateways of a test and what they share.
type fleet struct {
	ttl time.Duration

	mu        sync.Mutex
	names     []string // in rank, for every key
	caches    map[string]*Cache
	leases    map[string]*lease
	down      bool
	cut       map[string]bool // gateways that no other one reaches
	dead      map[string]bool
	stopped   map[string]bool // they are silent
	noPeers   bool
	behind    map[string]Match // purges that a gateway applies before it answers the next request of a peer
	calls     int64            // of Lead and Wait
	leadCalls int64
	opens     int64
}

func newFleet() *fleet {
	return &fleet{ttl: 10 * time.Second, caches: map[string]*Cache{}, leases: map[string]*lease{},
		cut: map[string]bool{}, dead: map[string]bool{}, stopped: map[string]bool{}}
}

func (f *fleet) do(work func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	work()
}

// member is the fleet as one gateway sees it.
type member struct {
	f    *fleet
	name string
}

var _ Fleet = (*member)(nil)

type lease struct {
	m      *member
	key    string
	ctx    context.Context
	cancel context.CancelFunc
	free   chan struct{} // closed when it is over
}

// enter is called with mu held.
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

func (m *member) Lead(_ context.Context, key string) (context.Context, func(), error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	m.f.leadCalls++
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

// reach tells whether a peer can be reached.
func (m *member) reach(peer string) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if m.f.dead[peer] || m.f.cut[peer] || m.f.cut[m.name] {
		return fmt.Errorf("%w: connection refused", ErrNotHere)
	}
	return nil
}

// pingTimeout is when the connection to a silent gateway ends.
const pingTimeout = 2 * time.Second

func (m *member) Open(ctx context.Context, peer string, r PeerRequest) (Meta, io.ReadCloser, error) {
	if err := m.reach(peer); err != nil {
		return Meta{}, nil, err
	}
	m.f.mu.Lock()
	m.f.opens++
	c := m.f.caches[peer]
	match, behind := m.f.behind[peer]
	delete(m.f.behind, peer)
	m.f.mu.Unlock()
	if behind {
		c.Purge(match)
	}
	meta, s, err := c.PeerOpen(ctx, r)
	if err != nil || s == nil {
		return meta, nil, err
	}
	return meta, &wire{ReadCloser: s, ctx: ctx, reach: func() error { return m.reach(peer) }, silent: func() bool {
		m.f.mu.Lock()
		defer m.f.mu.Unlock()
		return m.f.stopped[peer]
	}}, nil
}

// wire is a stream between two gateways.
type wire struct {
	io.ReadCloser
	ctx    context.Context
	reach  func() error
	silent func() bool
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if reached := w.reach(); reached != nil {
		return 0, reached
	}
	if w.silent() {
		return 0, errors.Join(sleep(w.ctx, pingTimeout), errors.New("no answer to a ping"))
	}
	return n, err
}

// end is called with mu held.
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
	for key, l := range f.leases {
		if l.m.name == name {
			delete(f.leases, key)
			close(l.free)
			l.cancel()
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

// gateways makes n caches that know each other.
func gateways(t *testing.T, f *fleet, n int, o Options) (list []*Cache) {
	for i := range n {
		m := &member{f: f, name: string(rune('a' + i))}
		own := o
		own.Fleet = m
		own.Source = func(file, _ string) (Source, error) { return originOf(file), nil }
		c := newCache(t, own)
		f.do(func() { f.caches[m.name], f.names = c, append(f.names, m.name) })
		list = append(list, c)
	}
	return list
}

func newCache(t *testing.T, o Options) *Cache {
	t.Helper()
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newCacheOnDisk(t *testing.T, path string, o Options) *Cache {
	t.Helper()
	c := newCache(t, o)
	require.NoError(t, c.OpenDisk(path))
	return c
}

// idle waits until the fills of a cache have ended. In a bubble synctest.Wait does more.
func idle(t *testing.T, c *Cache) {
	t.Helper()
	eventually.True(t, func() bool { s := c.Stats(); return s.Fills == 0 })
}

// result is what a client saw.
type result struct {
	body  []byte
	first time.Duration
	total time.Duration
	from  From
	err   error
}

// get is a client's GET of a whole file.
func get(ctx context.Context, c *Cache, o *origin) result { return getRange(ctx, c, o, 0, -1) }

// getRange is one of length bytes; -1 is the rest. What it gives may be there before the flight has
// stored and published it: see idle.
func getRange(ctx context.Context, c *Cache, o *origin, offset, length int64) (r result) {
	began := time.Now()
	e, err := c.Get(ctx, o.file, o, GetOptions{Hint: offset})
	if err != nil {
		return result{err: err}
	}
	if length < 0 {
		length = e.Version.Size - offset
	}
	s := c.Open(ctx, e, o, offset, length)
	defer func() { _ = s.Close() }()
	room := make([]byte, length+1) // one byte more than there may be
	for {
		have := len(r.body)
		n, err := s.Read(room[have:min(have+64<<10, len(room))])
		if n > 0 && have == 0 {
			r.first = time.Since(began)
		}
		r.body = room[:have+n]
		if err != nil {
			r.total, r.from = time.Since(began), s.From()
			if err != io.EOF {
				r.err = err
			}
			return r
		}
	}
}

// crowd is many clients at once, spread over the gateways.
func crowd(list []*Cache, o *origin, n int) []result {
	results := make([]result, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { results[i] = get(context.Background(), list[i%len(list)], o) })
	}
	wg.Wait()
	return results
}

// requireWhole wants the exact body.
func requireWhole(t *testing.T, o *origin, r result) {
	t.Helper()
	require.NoError(t, r.err)
	require.Equal(t, len(o.content), len(r.body))
	require.True(t, bytes.Equal(o.content, r.body))
}

// requireHonest wants the exact body or an error, and the beginning of the body in either case.
func requireHonest(t *testing.T, o *origin, r result) {
	t.Helper()
	if r.err == nil {
		requireWhole(t, o, r)
		return
	}
	require.True(t, bytes.HasPrefix(o.content, r.body))
}

func testFile(i int) string {
	return fmt.Sprintf("group1/M00/00/%02X/wKgABF5xyzmAAAAAAAAAAAAAA%09d.jpg", i%256, i)
}
