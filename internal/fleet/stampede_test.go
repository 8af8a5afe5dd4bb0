package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fmt"
	"io"
	"sync"
	"time"
)

// origin is a storage. Each new content is a new version.
type origin struct {
	mu      sync.Mutex // guards the fields below
	data    []byte
	changes int64
}

func (o *origin) Name() string { return "storage" }

func (o *origin) Unlisted() bool             { return false }
func (o *origin) NegativeTTL() time.Duration { return 0 }
func (o *origin) RequestedAs() string        { return "" }

// Exclude implements cache.Source: there is one server.
func (o *origin) Exclude(string) {}

// Recheck implements cache.Source: the only server sends the same again.
func (o *origin) Recheck(_ context.Context, _ cache.Version, sum checksum.Sum, _ []string) (checksum.Sum, error) {
	return sum, nil
}

func (o *origin) set(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data = data
	o.changes++
}

func (o *origin) now() ([]byte, cache.Version) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.data, cache.Version{Size: int64(len(o.data)), ModTime: content.Nanoseconds(1 + o.changes)}
}

func (o *origin) Stat(context.Context, cache.Version) (cache.Version, error) {
	_, v := o.now()
	return v, nil
}

func (o *origin) Fetch(
	_ context.Context,
	want *cache.Version,
	offset, length int64,
) (cache.Version, io.ReadCloser, error) {
	data, v := o.now()
	if want != nil && *want != v {
		return cache.Version{}, nil, cache.ErrChanged
	}
	return v, io.NopCloser(&dribble{bytes.NewReader(data[offset:min(offset+length, int64(len(data)))])}), nil
}

// dribble returns a few bytes at a time, after a pause.
type dribble struct{ r io.Reader }

func (d *dribble) Read(p []byte) (int, error) {
	time.Sleep(200 * time.Microsecond)
	return d.r.Read(p[:min(len(p), 16<<10)])
}

// read reads a whole file through a gateway's cache.
func (g *gateway) read(file string, o *origin) ([]byte, error) {
	entry, err := g.cache.Get(context.Background(), file, o, cache.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("lookup: %w", err)
	}
	stream := g.cache.Open(context.Background(), entry, o, 0, entry.Version.Size)
	defer stream.Close()
	return io.ReadAll(stream)
}

// random returns n random bytes.
func random(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.Read(p) // never fails
	return p
}
