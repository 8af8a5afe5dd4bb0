package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/cache"

	"github.com/stretchr/testify/require"
)

var testVersion = cache.Version{Size: 3 << 20, ModTime: 1767225600123456789, CRC32: 0xCAFEBABE, Immutable: true}

// written is what a frameWriter makes.
func written(t testing.TB, write func(*frameWriter)) []byte {
	t.Helper()
	var b bytes.Buffer
	write(&frameWriter{w: &b})
	return b.Bytes()
}

// whole is a whole answer with the data.
func whole(t testing.TB, data ...[]byte) []byte {
	t.Helper()
	return written(t, func(w *frameWriter) {
		require.NoError(t, w.heartbeat())
		require.NoError(t, w.version(testVersion))
		for _, d := range data {
			require.NoError(t, w.data(d))
			require.NoError(t, w.heartbeat())
		}
		require.NoError(t, w.end())
	})
}

// received reads an answer.
func received(r io.Reader) (v cache.Version, data []byte, err error) {
	f := newFrameReader(r)
	if v, err = f.version(); err != nil {
		return v, nil, err
	}
	data, err = io.ReadAll(f)
	return v, data, err
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func TestFramesCarryVersionAndBytes(t *testing.T) {
	data := random(maxData + 4711)
	v, got, err := received(bytes.NewReader(whole(t, data[:1], data[1:maxData+1], data[maxData+1:])))
	require.NoError(t, err)
	require.Equal(t, testVersion, v)
	require.Equal(t, data, got)

	v, got, err = received(bytes.NewReader(whole(t)))
	require.NoError(t, err)
	require.Equal(t, testVersion, v)
	require.Empty(t, got)
}

// Wherever an answer is cut it is no clean end.
func TestFramesCutAnywhere(t *testing.T) {
	answer := whole(t, []byte("hello"), []byte("world"))
	for n := range answer {
		for _, r := range []io.Reader{bytes.NewReader(answer[:n]), iotest.OneByteReader(bytes.NewReader(answer[:n]))} {
			_, _, err := received(r)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "after %d of %d bytes", n, len(answer))
			require.False(t, errors.Is(err, io.EOF), "after %d bytes", n)
		}
	}
}

// Whichever bit is wrong, what comes is an error or exactly what was sent.
func TestFramesWithWrongBits(t *testing.T) {
	answer := whole(t, []byte("hello"), []byte("world"))
	for i := range len(answer) * 8 {
		wrong := bytes.Clone(answer)
		wrong[i/8] ^= 1 << (i % 8)
		v, got, err := received(bytes.NewReader(wrong))
		require.Error(t, err, "bit %d: got %v %q", i, v, got)
	}
}

func TestFramesRefuse(t *testing.T) {
	huge := binary.BigEndian.AppendUint32([]byte{kindData}, 1<<31)
	for name, answer := range map[string][]byte{
		"data before the version": written(t, func(w *frameWriter) { require.NoError(t, w.data([]byte("x"))) }),
		"end before the version":  written(t, func(w *frameWriter) { require.NoError(t, w.end()) }),
		"unknown kind":            {'?', 0, 0, 0, 0},
		"huge frame":              huge,
		"huge error":              binary.BigEndian.AppendUint32([]byte{kindError}, maxErrorText+2),
		"empty error":             {kindError, 0, 0, 0, 0},
		"long heartbeat":          {kindHeartbeat, 0, 0, 0, 1, 0},
		"empty data":              append(written(t, func(w *frameWriter) { require.NoError(t, w.version(testVersion)) }), kindData, 0, 0, 0, 4, 0, 0, 0, 0),
		"negative size":           written(t, func(w *frameWriter) { require.NoError(t, w.version(cache.Version{Size: -1})) }),
		"two versions": written(t, func(w *frameWriter) {
			require.NoError(t, w.version(testVersion))
			require.NoError(t, w.version(testVersion))
		}),
		"wrong number of bytes": written(t, func(w *frameWriter) {
			require.NoError(t, w.version(testVersion))
			require.NoError(t, w.data([]byte("x")))
			w.sent++
			require.NoError(t, w.end())
		}),
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := received(bytes.NewReader(answer))
			require.ErrorIs(t, err, errFrame)
		})
	}
}

func TestFramesTellErrors(t *testing.T) {
	for _, c := range []struct{ told, want error }{
		{cache.ErrNotHere, cache.ErrNotHere}, {cache.ErrChanged, cache.ErrChanged}, {io.ErrUnexpectedEOF, errPeerFailed},
	} {
		first := written(t, func(w *frameWriter) { require.NoError(t, w.fail(fmt.Errorf("so: %w", c.told))) })
		_, _, err := received(bytes.NewReader(first))
		require.ErrorIs(t, err, c.want)
		require.ErrorContains(t, err, "so: ")

		later := written(t, func(w *frameWriter) {
			require.NoError(t, w.version(testVersion))
			require.NoError(t, w.data([]byte("bytes")))
			require.NoError(t, w.fail(c.told))
		})
		_, got, err := received(bytes.NewReader(later))
		require.ErrorIs(t, err, c.want)
		require.Equal(t, []byte("bytes"), got)
	}
	long := written(t, func(w *frameWriter) { require.NoError(t, w.fail(errors.New(string(make([]byte, 9999))))) })
	require.LessOrEqual(t, len(long), frameHead+1+maxErrorText)
}

func FuzzFrames(f *testing.F) {
	f.Add(whole(f, []byte("hello")))
	f.Add(whole(f))
	f.Add(written(f, func(w *frameWriter) { _ = w.fail(cache.ErrNotHere) }))
	f.Add([]byte{kindData, 0xFF, 0xFF, 0xFF, 0xFF})
	f.Fuzz(func(t *testing.T, answer []byte) {
		v, data, err := received(bytes.NewReader(answer))
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(data), len(answer))
		require.GreaterOrEqual(t, v.Size, int64(0))
		// What was accepted is written again in the same way, but for heartbeats and how the data is cut.
		again := written(t, func(w *frameWriter) {
			require.NoError(t, w.version(v))
			for rest := data; len(rest) > 0; rest = rest[min(len(rest), maxData):] {
				require.NoError(t, w.data(rest[:min(len(rest), maxData)]))
			}
			require.NoError(t, w.end())
		})
		v2, data2, err := received(bytes.NewReader(again))
		require.NoError(t, err)
		require.Equal(t, v, v2)
		require.Equal(t, data, data2)
	})
}

func FuzzParseSegmentRequest(f *testing.F) {
	f.Add((&SegmentRequest{Key: cache.SegmentKey{File: "group1/M00/00/00/x", Index: 3}, Offset: 17, Want: &testVersion}).uri())
	f.Add(SegmentPath + "?file=a&index=-1&offset=0")
	f.Add(SegmentPath + "?file=a&index=1&offset=99999999999")
	f.Add("/group1/M00/00/00/x?file=a")
	f.Fuzz(func(t *testing.T, uri string) {
		r, err := ParseSegmentRequest(uri)
		if err != nil {
			require.ErrorIs(t, err, errRequest)
			return
		}
		require.Equal(t, uri, r.uri())
		require.True(t, r.Key.Index >= 0 && r.Offset >= 0 && r.Offset <= cache.SegmentSize && r.Key.File != "")
	})
}

func TestParseSegmentRequestIsTheReverse(t *testing.T) {
	for _, r := range []*SegmentRequest{
		{Key: cache.SegmentKey{File: "group1/M00/00/00/x y&=%", Index: 1 << 40}, Offset: cache.SegmentSize, Want: &testVersion},
		{Key: cache.SegmentKey{File: "f"}},
		{Key: cache.SegmentKey{File: "f"}, Want: &cache.Version{ModTime: -5, Linked: true}},
	} {
		got, err := ParseSegmentRequest(r.uri())
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
	_, err := ParseSegmentRequest(SegmentPath + "?file=f&index=9223372036854775808&offset=0")
	require.ErrorIs(t, err, errRequest)
}

// slowStream gives its pieces after pauses, and then an error.
type slowStream struct {
	ctx    context.Context
	pause  time.Duration
	pieces [][]byte
	last   error
}

func (s *slowStream) Read(p []byte) (int, error) {
	select {
	case <-time.After(s.pause):
	case <-s.ctx.Done():
		return 0, context.Cause(s.ctx)
	}
	if len(s.pieces) == 0 {
		return 0, s.last
	}
	n := copy(p, s.pieces[0])
	s.pieces = s.pieces[1:]
	return n, nil
}

func (s *slowStream) Close() error { return nil }

// counted counts the heartbeats of an answer.
func counted(t *testing.T, answer []byte) (heartbeats int) {
	t.Helper()
	for len(answer) > 0 {
		if answer[0] == kindHeartbeat {
			heartbeats++
		}
		answer = answer[frameHead+binary.BigEndian.Uint32(answer[1:]):]
	}
	return heartbeats
}

func TestWriteSegmentSendsHeartbeatsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer bytes.Buffer
		flushed := 0
		open := func(ctx context.Context) (cache.Version, io.ReadCloser, error) {
			time.Sleep(3500 * time.Millisecond) // the origin is slow
			return testVersion, &slowStream{ctx, 2500 * time.Millisecond, [][]byte{[]byte("hello"), []byte("world")}, io.EOF}, nil
		}
		err := writeSegment(t.Context(), &answer, func() error { flushed = answer.Len(); return nil }, time.Second, open)
		require.NoError(t, err)
		require.Equal(t, answer.Len(), flushed)
		require.Equal(t, 3+2+2+2, counted(t, answer.Bytes()))
		v, data, err := received(&answer)
		require.NoError(t, err)
		require.Equal(t, testVersion, v)
		require.Equal(t, "helloworld", string(data))
	})
}

func TestWriteSegmentTellsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flush := func() error { return nil }
		var answer bytes.Buffer
		err := writeSegment(t.Context(), &answer, flush, time.Second, func(context.Context) (cache.Version, io.ReadCloser, error) {
			return cache.Version{}, nil, cache.ErrNotHere
		})
		require.ErrorIs(t, err, cache.ErrNotHere)
		_, _, err = received(&answer)
		require.ErrorIs(t, err, cache.ErrNotHere)

		answer.Reset()
		err = writeSegment(t.Context(), &answer, flush, time.Second, func(ctx context.Context) (cache.Version, io.ReadCloser, error) {
			return testVersion, &slowStream{ctx, time.Millisecond, [][]byte{[]byte("hello")}, cache.ErrChanged}, nil
		})
		require.ErrorIs(t, err, cache.ErrChanged)
		_, data, err := received(&answer)
		require.ErrorIs(t, err, cache.ErrChanged)
		require.Equal(t, "hello", string(data))
	})
}

// Whoever has asked is gone, or this gateway stops: the goroutine that waits for the segment ends too, which synctest sees.
func TestWriteSegmentEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forever := func(ctx context.Context) (cache.Version, io.ReadCloser, error) {
			return testVersion, &slowStream{ctx, time.Hour, nil, io.EOF}, nil
		}
		gone := errors.New("connection reset")
		err := writeSegment(t.Context(), io.Discard, func() error { return gone }, time.Second, forever)
		require.ErrorIs(t, err, gone)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = writeSegment(ctx, io.Discard, func() error { return nil }, time.Second, forever)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
