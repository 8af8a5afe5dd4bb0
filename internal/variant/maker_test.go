package variant

import (
	"bytes"
	"context"
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
		Version: func(context.Context) (content.Version, error) { return v, nil },
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

// TestMaker: a variant has the time of its file; the version of a variant that was made needs no
// other making; a file of which none can be made is remembered.
func TestMaker(t *testing.T) {
	m := NewMaker(MakerOptions{})
	src, opened := sourceOf("f", picturesOf(t, 64, 32), closedChannel())
	spec := picture.Spec{Width: 16, Quality: 80}
	v, err := m.Version(t.Context(), src, spec)
	require.NoError(t, err)
	made, err := m.Make(t.Context(), src, spec)
	require.NoError(t, err)
	require.Equal(t, v, made.Version)
	require.EqualValues(t, 1, opened.Load(), "the body for the version was kept")
	require.EqualValues(t, 1e9, v.ModTime)
	again, err := m.Version(t.Context(), src, spec)
	require.NoError(t, err)
	require.Equal(t, v, again)
	require.EqualValues(t, 1, opened.Load())

	for _, file := range [][]byte{[]byte("no picture"), {}} {
		bad, _ := sourceOf("bad", file, closedChannel())
		made, err := m.Make(t.Context(), bad, spec)
		require.NoError(t, err)
		require.Zero(t, made.Version.Size)
		require.True(t, made.Version.Immutable)
	}
	late := NewMaker(MakerOptions{Timeout: time.Nanosecond})
	large, _ := sourceOf("large", picturesOf(t, 3000, 3000), closedChannel())
	made, err = late.Make(t.Context(), large, spec)
	require.NoError(t, err)
	require.Zero(t, made.Version.Size)
	require.False(t, made.Version.Immutable, "the next request may have more time")
	small := NewMaker(MakerOptions{Memory: 8000})
	made, err = small.Make(t.Context(), src, spec)
	require.NoError(t, err)
	require.Zero(t, made.Version.Size)
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
