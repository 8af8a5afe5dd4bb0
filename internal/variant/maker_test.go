package variant

import (
	"bytes"
	"context"
	"hash/crc32"
	"image"
	"image/jpeg"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/variant/picture"

	"github.com/stretchr/testify/require"
)

func picturesOf(t testing.TB, width, height int) []byte {
	var b bytes.Buffer
	require.NoError(t, jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, width, height)), nil))
	return b.Bytes()
}

// sourceOf returns a source whose content is sent when ready is closed.
func sourceOf(name string, file []byte, ready <-chan struct{}) (Source, *atomic.Int32) {
	opened := &atomic.Int32{}
	v := content.Version{Size: int64(len(file)), ModTime: 1e9, Immutable: true}
	return Source{Name: name,
		Open: func(ctx context.Context) (content.Version, io.ReadCloser, error) {
			opened.Add(1)
			select {
			case <-ready:
			case <-ctx.Done():
				return v, nil, context.Cause(ctx)
			}
			return v, io.NopCloser(bytes.NewReader(file)), nil
		}}, opened
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// TestMaker: a variant has the time of its file, so that it is known of which version it was made;
// one that cannot be made is empty.
func TestMaker(t *testing.T) {
	m := NewMaker(MakerOptions{})
	src, _ := sourceOf("f", picturesOf(t, 64, 32), closedChannel())
	spec := picture.Spec{Width: 16, Quality: 80}
	made, err := m.Make(t.Context(), src, spec)
	require.NoError(t, err)
	require.EqualValues(t, len(made.Body), made.Version.Size)
	require.Equal(t, crc32.ChecksumIEEE(made.Body), made.Version.CRC32)
	require.True(t, IsOf(made.Version, content.Version{ModTime: 1e9, Immutable: true}))
	require.NoError(t, made.Close())

	changing, _ := sourceOf("g", picturesOf(t, 64, 32), closedChannel())
	file, body, err := changing.Open(t.Context())
	require.NoError(t, err)
	file.Immutable = false
	changing.Open = func(context.Context) (content.Version, io.ReadCloser, error) { return file, body, nil }
	made, err = m.Make(t.Context(), changing, spec)
	require.NoError(t, err)
	require.True(t, IsOf(made.Version, file))
	require.False(t, IsOf(made.Version, content.Version{ModTime: 1e9, Size: file.Size + 1}))
	require.False(t, IsOf(made.Version, content.Version{ModTime: 2e9, Size: file.Size}))

	for _, file := range [][]byte{[]byte("no picture"), {}} {
		bad, _ := sourceOf("bad", file, closedChannel())
		made, err := m.Make(t.Context(), bad, spec)
		require.NoError(t, err)
		require.Zero(t, made.Version.Size)
	}
	late := NewMaker(MakerOptions{Timeout: time.Nanosecond})
	large, _ := sourceOf("large", picturesOf(t, 3000, 3000), closedChannel())
	_, err = late.Make(t.Context(), large, spec)
	require.ErrorIs(t, err, ErrBusy, "another time it may be made")
	small := NewMaker(MakerOptions{Memory: 8000})
	made, err = small.Make(t.Context(), src, spec)
	require.NoError(t, err)
	require.Zero(t, made.Version.Size)
}

// TestBudget: the bytes of a variant count in the memory of all pictures until it is closed; those
// of its decoded picture do not.
func TestBudget(t *testing.T) {
	m := NewMaker(MakerOptions{Memory: 4 << 20})
	src, _ := sourceOf("f", picturesOf(t, 640, 320), closedChannel())
	made, err := m.Make(t.Context(), src, picture.Spec{Quality: 80})
	require.NoError(t, err)
	whole := m.o.Memory - m.o.Memory/4
	require.False(t, m.decoded.TryAcquire(whole-int64(len(made.Body))+1))
	require.True(t, m.decoded.TryAcquire(whole-int64(cap(made.Body))))
	m.decoded.Release(whole - int64(cap(made.Body)))
	require.NoError(t, made.Close())
	require.NoError(t, made.Close())
	require.True(t, m.decoded.TryAcquire(whole))
	require.True(t, m.files.TryAcquire(m.o.Memory/4))
}

// TestQueue: beyond the queue requests are rejected at once; variants of one file are made one by
// one; those who leave free their places.
func TestQueue(t *testing.T) {
	m := NewMaker(MakerOptions{Makers: 1, Queue: 8})
	ready := make(chan struct{})
	src, opened := sourceOf("f", picturesOf(t, 64, 32), ready)
	var done sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	for i := range 3 {
		done.Go(func() { _, _ = m.Make(ctx, src, picture.Spec{Width: i + 1}) })
	}
	eventually.True(t, func() bool { return m.Stats().Waiting == 3 && opened.Load() == 1 })
	_, err := m.Make(t.Context(), src, picture.Spec{Width: 9})
	require.ErrorIs(t, err, ErrBusy, "a file has a quarter of the queue")
	for i := range 6 {
		other, _ := sourceOf(strconv.Itoa(i), nil, ready)
		done.Go(func() { _, _ = m.Make(ctx, other, picture.Spec{Width: 9}) })
	}
	eventually.True(t, func() bool { return m.Stats().Waiting == 9 })
	other, _ := sourceOf("other", nil, ready)
	_, err = m.Make(t.Context(), other, picture.Spec{Width: 9})
	require.ErrorIs(t, err, ErrBusy)
	require.EqualValues(t, 2, m.Stats().Rejected)
	leave()
	done.Wait()
	require.Zero(t, m.Stats().Waiting)
	require.Empty(t, m.queues)
}

// TestMakerWith: after a change of options, variants that are being made count in a limit that is
// the same.
func TestMakerWith(t *testing.T) {
	o := MakerOptions{Memory: 1 << 20, Makers: 1, Queue: 1}
	m := NewMaker(o)
	require.NoError(t, (&Made{m: m}).grow(t.Context(), 700_000))
	require.True(t, m.places.TryAcquire(1))
	o.Queue = 2
	same := m.With(o)
	require.False(t, same.decoded.TryAcquire(700_000))
	require.False(t, same.places.TryAcquire(1))
	o.Memory, o.Makers = 2<<20, 2
	other := m.With(o)
	require.True(t, other.decoded.TryAcquire(700_000))
	require.True(t, other.places.TryAcquire(2))
}
