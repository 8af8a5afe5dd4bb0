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

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/testing/cachetest"
	"fastdfs-gateway/internal/testing/eventually"
)

var errOrigin = errors.New("the storage is broken")

// origin is the Source of one file: the storages of its group. Tests set its fields before use, or
// under its mutex.
type origin struct {
	first    time.Duration // before the first byte of a response
	whole    time.Duration // for all bytes of a segment
	file     string
	negative time.Duration
	name     string // of the storage; default "storage"
	unlisted bool

	mu      sync.Mutex
	content []byte // nil = no such file
	v       Version
	down    bool
	breakAt func(fetch int64, served int64) bool // reports whether a fetch breaks off after these bytes

	// order lists the storages by health; a test may change it. The first one that is not excluded
	// gets the request. The storages in corrupted have other content.
	order     []string
	corrupted map[string][]byte
	excluded  map[string]bool

	stats, fetches, served, running, most atomic.Int64
	rechecks                              atomic.Int64
}

func newOrigin(file string, size int64) *origin {
	o := noFile(file)
	o.content = cachetest.Content(file, size)
	o.v = cachetest.Version(o.content)
	return o
}

// noFile returns an origin whose storages do not have the file.
func noFile(file string) *origin {
	o := &origin{file: file, order: []string{"storage"}, corrupted: map[string][]byte{}, excluded: map[string]bool{}}
	origins.Store(file, o)
	return o
}

// origins holds the newest origin of each file, for the requests that gateways receive from peers.
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

// RequestedAs implements Source.
func (o *origin) RequestedAs() string { return "" }

// Exclude implements Source.
func (o *origin) Exclude(server string) { o.set(func() { o.excluded[server] = true }) }

// asked returns the storage that the next request is sent to, and its content. mu is held.
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

// contentOf returns the content of one storage. mu is held.
func (o *origin) contentOf(server string) []byte {
	if wrong, ok := o.corrupted[server]; ok {
		return wrong
	}
	return o.content
}

// Recheck implements Source. It reads the file from the storages that are not among the senders, or
// from the only storage. With an unknown sender, which is "", the same sum from one storage proves
// nothing, since it may be that sender: two are needed.
func (o *origin) Recheck(_ context.Context, v Version, sum checksum.Sum, senders []string) (checksum.Sum, error) {
	o.rechecks.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	agreed := 0
	for _, server := range o.order {
		if slices.Contains(senders, server) && len(o.order) > 1 {
			continue
		}
		var again checksum.Sum
		_, _ = again.Write(o.contentOf(server))
		if again.Standard() == sum.Standard() {
			if agreed++; agreed == 2 || len(o.order) == 1 || !slices.Contains(senders, "") {
				return again, nil
			}
			continue
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

// now returns the present content and version of the file.
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

// part returns the present content of a range.
func (o *origin) part(offset, length int64) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	from := min(offset, int64(len(o.content)))
	return o.content[from:min(from+length, int64(len(o.content)))]
}

func (o *origin) Stat(ctx context.Context, _ Version) (Version, error) {
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

// body is the body of a response. Read returns at most a 64th of a segment.
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

// gateways makes the caches of n gateways of one fleet.
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
	c := New(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newCacheOnDisk(t *testing.T, path string, o Options) *Cache {
	t.Helper()
	c := newCache(t, o)
	require.NoError(t, c.OpenDisk(tier.DiskOptions{Path: path}))
	return c
}

// idle waits until the fills of a cache have ended. In a bubble synctest.Wait does more.
func idle(t *testing.T, c *Cache) {
	t.Helper()
	eventually.True(t, func() bool { s := c.Stats(); return s.Fills == 0 })
}

// result is the response to a client, as far as it has arrived.
type result struct {
	body  []byte
	first time.Duration
	total time.Duration
	from  From
	err   error
}

// get requests a whole file, as the GET of a client does.
func get(ctx context.Context, c *Cache, o *origin) result { return getRange(ctx, c, o, 0, -1) }

// getRange requests length bytes from offset on; a length of -1 is the rest of the file. It may
// return before the fill has stored and published the segment: see idle.
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
	got := received{expected: o.part(offset, length)}
	_, r.err = got.readFrom(s, func() { r.first = time.Since(began) })
	r.body, r.total, r.from = got.bytes(), time.Since(began), s.From()
	return r
}

// received collects the bytes that a client receives. It keeps no copy as long as they equal the
// expected bytes.
type received struct {
	expected []byte
	n        int
	other    []byte // all received bytes, as soon as one of them was not expected; else nil
}

// bytes returns all received bytes.
func (r *received) bytes() []byte {
	if r.other != nil {
		return r.other
	}
	return r.expected[:r.n:r.n]
}

func (r *received) add(p []byte) {
	if r.other == nil && bytes.HasPrefix(r.expected[r.n:], p) {
		r.n += len(p)
		return
	}
	if r.other == nil {
		r.other = append(make([]byte, 0, max(len(r.expected), r.n+len(p))), r.expected[:r.n]...)
	}
	r.other = append(r.other, p...)
	r.n = len(r.other)
}

// pieces is the pool of 64 KiB buffers that clients read into.
var pieces = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// readFrom reads s to its end. It calls first when the first bytes have arrived.
func (r *received) readFrom(s io.Reader, first func()) ([]byte, error) {
	piece := pieces.Get().(*[64 << 10]byte)
	defer pieces.Put(piece)
	for {
		n, err := s.Read(piece[:])
		if n > 0 && r.n == 0 {
			first()
		}
		r.add(piece[:n])
		switch err {
		case nil:
		case io.EOF:
			return r.bytes(), nil
		default:
			return r.bytes(), err
		}
	}
}

// readAll is io.ReadAll without a copy, as long as the content is the expected one.
func readAll(s io.Reader, expected []byte) ([]byte, error) {
	r := received{expected: expected}
	return r.readFrom(s, func() {})
}

// manyClients sends n requests at once, spread over the gateways.
func manyClients(list []*Cache, o *origin, n int) []result {
	results := make([]result, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { results[i] = get(context.Background(), list[i%len(list)], o) })
	}
	wg.Wait()
	return results
}

// requireWhole requires the exact body.
func requireWhole(t *testing.T, o *origin, r result) {
	t.Helper()
	require.NoError(t, r.err)
	require.Equal(t, len(o.content), len(r.body))
	require.True(t, bytes.Equal(o.content, r.body))
}

// requireHonest requires the exact body, or an error after a correct beginning of the body.
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
