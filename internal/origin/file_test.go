package origin

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/origintest"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"

	"github.com/stretchr/testify/require"
)

// oneFile is a Protocol for storages that have one file.
type oneFile struct {
	origintest.Unreachable
	bytes []byte
	open  atomic.Int64 // running downloads
}

func (o *oneFile) Stat(_ context.Context, w client.FetchRequest, _ []client.Server) (client.Part, error) {
	v, err := client.VersionOf(w.ID, int64(len(o.bytes)), 0)
	return client.Part{Version: v}, err
}

func (o *oneFile) Open(_ context.Context, _ client.FetchRequest, part client.Part, _ []client.Server) (
	io.ReadCloser, error) {
	o.open.Add(1)
	return &oneDownload{iotest.HalfReader(bytes.NewReader(o.bytes[part.Offset:][:part.Length])), o}, nil
}

type oneDownload struct {
	io.Reader
	o *oneFile
}

func (d *oneDownload) Close() error {
	d.o.open.Add(-1)
	return nil
}

// patient is a Client without a limit of waits that never disconnects.
type patient struct{}

func (patient) Wait(string, func()) (func(), error) { return func() {}, nil }
func (patient) Hint() int64                         { return cache.NoHint }

// TestFileAt: ranges of a file may follow each other, touch, and go back, with and without a cache.
// The download of a range is closed when its last bytes are at hand, or when the file is closed.
func TestFileAt(t *testing.T) {
	o := &oneFile{bytes: bytes.Repeat([]byte("0123456789abcdef"), 50_000)}
	id := fileID(t, o.bytes, nil)
	kept := newCache(t, cache.Options{Memory: 64 << 20})
	for name, c := range map[string]*cache.Cache{"alone": nil, "cached": kept} {
		a := NewResolver(Options{Protocol: o, Cache: c})
		f := fileOf(a, id, client.Server{Host: "10.0.0.1"})
		var err error
		if c == nil {
			f.whole, err = f.fetcher.stat(t.Context())
		} else {
			f.entry, err = c.Get(t.Context(), id.String(), f.fetcher, cache.GetOptions{})
		}
		require.NoError(t, err, name)
		from, err := f.Open(0, 40_000)
		require.NoError(t, err, name)
		require.Equal(t, cache.FromOrigin, from, name)
		for _, part := range [][2]int64{
			{0, 40_000}, {40_000, 10}, {40_010, 100_000}, {5, 1}, {700_000, 100_000}, {3, 1},
		} {
			b, err := contenttest.ReadAll(partOf{f, part[0]}, part[1])
			require.NoError(t, err, name)
			require.True(t, bytes.Equal(o.bytes[part[0]:][:part[1]], b), "%s: %v", name, part)
		}
		if c == nil {
			require.Zero(t, o.open.Load(), "the last range is small, so that nothing is left of it")
		}
		_, err = f.At(100, 500_000)
		require.NoError(t, err, name)
		f.Close()
		require.Zero(t, a.o.Running.Load(), name)
	}
	require.NoError(t, kept.Close())
	require.Zero(t, o.open.Load())
}

// partOf is a File that begins at an offset of another one.
type partOf struct {
	content.File
	start int64
}

func (p partOf) At(offset, limit int64) (content.Chunk, error) {
	return p.File.At(p.start+offset, limit)
}

// TestStoredNeedsNoPlace: a range whose first byte is on the disk of the cache is served while too
// many requests wait for other hosts. A range whose first byte must be fetched is rejected.
func TestStoredNeedsNoPlace(t *testing.T) {
	o := &oneFile{bytes: bytes.Repeat([]byte("0123456789abcdef"), cache.SegmentSize/10)}
	id := fileID(t, o.bytes, nil)
	kept := newCache(t, cache.Options{Memory: -1})
	require.NoError(t, kept.OpenDisk(tier.DiskOptions{Path: t.TempDir()}))
	a := NewResolver(Options{Protocol: o, Cache: kept, Sources: anyHost()})
	open := func(offset int64, full bool) ([]byte, cache.From, error) {
		r := &Request{ID: id, Now: time.Now(), Client: &counting{full: full}}
		_, err := a.Find(r, local.ErrNoGroup)
		require.NoError(t, err)
		defer r.File.Close()
		length := int64(len(o.bytes)) - offset
		from, err := r.File.Open(offset, length)
		if err != nil {
			return nil, from, err
		}
		got, err := contenttest.ReadAll(partOf{&r.File, offset}, length)
		return got, from, err
	}
	_, _, err := open(cache.SegmentSize, false)
	require.NoError(t, err)
	eventually.True(t, func() bool { return kept.Stats().Fills == 0 })
	_, _, err = open(0, true)
	require.ErrorIs(t, err, ErrTooManyWaiting)
	got, _, err := open(cache.SegmentSize, true)
	require.NoError(t, err)
	require.True(t, bytes.Equal(o.bytes[cache.SegmentSize:], got))
}
