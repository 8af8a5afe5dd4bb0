package frames

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

// written returns the bytes of some frames.
func written(write func(f *http2.Framer)) []byte {
	var b bytes.Buffer
	write(http2.NewFramer(&b, nil))
	return b.Bytes()
}

// open returns a HEADERS frame of a new stream.
func open(id uint32) []byte {
	return written(func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x82}, EndHeaders: true,
			EndStream: true})
	})
}

// data returns a DATA frame.
func data(id uint32, n int, end bool) []byte {
	return written(func(f *http2.Framer) { _ = f.WriteData(id, end, make([]byte, n)) })
}

// begun returns a Tracker that has seen the preface.
func begun(t *testing.T) *Tracker {
	t.Helper()
	tr := New()
	require.NoError(t, tr.Received([]byte(preface)))
	return tr
}

// TestPartial: a frame, and a header block with all its frames, is partial until its last byte.
func TestPartial(t *testing.T) {
	block := written(func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
		_ = f.WriteContinuation(1, false, nil)
		_ = f.WriteContinuation(1, true, []byte{0x84})
	})
	for name, text := range map[string][]byte{"header block": block, "data": data(1, 300, false),
		"ping": written(func(f *http2.Framer) { _ = f.WritePing(false, [8]byte{}) })} {
		tr := begun(t)
		require.False(t, tr.State().Partial)
		for i := range text {
			require.False(t, i > 0 && !tr.State().Partial, "%s: whole after %d bytes", name, i)
			require.Zero(t, tr.State().Received, name)
			require.NoError(t, tr.Received(text[i:i+1]))
		}
		require.False(t, tr.State().Partial, name)
		require.EqualValues(t, 1, tr.State().Received, name)
	}
	require.True(t, New().State().Partial, "the preface is missing")
}

// TestBlocked: a response is blocked while its handler is in a write, and after the handler until
// the end of the stream is sent or reset.
func TestBlocked(t *testing.T) {
	reset := written(func(f *http2.Framer) { _ = f.WriteRSTStream(1, http2.ErrCodeCancel) })
	for name, tt := range map[string]struct {
		then func(tr *Tracker)
		want bool
	}{
		"nothing to send yet": {func(tr *Tracker) {}, false},
		"in a write":          {(*Tracker).WriteBegins, true},
		"between writes":      {func(tr *Tracker) { tr.WriteBegins(); tr.WriteEnds() }, false},
		"handler has ended":   {(*Tracker).HandlerEnds, true},
		"end sent":            {func(tr *Tracker) { tr.HandlerEnds(); tr.Sent(data(1, 0, true)) }, false},
		"only bytes sent":     {func(tr *Tracker) { tr.HandlerEnds(); tr.Sent(data(1, 1, false)) }, true},
		"client resets":       {func(tr *Tracker) { tr.HandlerEnds(); _ = tr.Received(reset) }, false},
		"server resets":       {func(tr *Tracker) { tr.HandlerEnds(); tr.Sent(reset) }, false},
	} {
		tr := begun(t)
		require.NoError(t, tr.Received(open(1)))
		tr.HandlerBegins()
		tt.then(tr)
		require.Equal(t, tt.want, tr.State().Blocked, name)
	}
}

// TestSent counts the bytes of responses, in pieces of any size, and no others.
func TestSent(t *testing.T) {
	text := append(append(open(1), data(1, 1000, false)...), data(1, 0, true)...)
	want := int64(len(text))
	text = append(text, written(func(f *http2.Framer) { _ = f.WritePing(true, [8]byte{}) })...)
	for _, size := range []int{1, 5, 9, 10, 4096} {
		tr := begun(t)
		for rest := text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			tr.Sent(rest[:min(size, len(rest))])
		}
		require.InDelta(t, want, tr.State().Sent, 3*headLength)
	}
}

// TestFlood: each kind of frame without a purpose ends a connection, and a client that reads its
// responses may send as many as it needs.
func TestFlood(t *testing.T) {
	cancelled := func(i int) []byte {
		id := uint32(2*i + 1)
		return append(open(id), written(func(f *http2.Framer) { _ = f.WriteRSTStream(id, http2.ErrCodeCancel) })...)
	}
	always := func(write func(f *http2.Framer)) func(int) []byte {
		text := written(write)
		return func(int) []byte { return text }
	}
	for name, next := range map[string]func(i int) []byte{
		"resets":       cancelled,
		"pings":        always(func(f *http2.Framer) { _ = f.WritePing(false, [8]byte{}) }),
		"settings":     always(func(f *http2.Framer) { _ = f.WriteSettings() }),
		"priorities":   always(func(f *http2.Framer) { _ = f.WritePriority(1, http2.PriorityParam{}) }),
		"windows":      always(func(f *http2.Framer) { _ = f.WriteWindowUpdate(0, 1) }),
		"continuation": always(func(f *http2.Framer) { _ = f.WriteContinuation(1, false, nil) }),
		"empty data":   always(func(f *http2.Framer) { _ = f.WriteData(1, false, nil) }),
		"unknown":      always(func(f *http2.Framer) { _ = f.WriteRawFrame(99, 0, 1, nil) }),
		"streams":      func(i int) []byte { return open(uint32(2*i + 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			tr := begun(t)
			var err error
			n := 0
			for ; err == nil && n < 2*maxControl; n++ {
				err = tr.Received(next(n))
			}
			require.ErrorIs(t, err, ErrFlood)
			require.GreaterOrEqual(t, n, maxResets)

			tr = begun(t)
			for i := range 10 * maxControl { // with a response for each
				require.NoError(t, tr.Received(next(i)))
				tr.Sent(data(uint32(2*i+1), 100, true))
				tr.Refill(10 * time.Millisecond)
			}
		})
	}
}

// TestAfterGoAway: streams that the server ignores are not counted.
func TestAfterGoAway(t *testing.T) {
	tr := begun(t)
	tr.Sent(written(func(f *http2.Framer) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) }))
	for i := range 2 * maxOpen {
		require.NoError(t, tr.Received(open(uint32(2*i+1))))
	}
	require.Empty(t, tr.open)
}

// FuzzReceived: the state does not depend on the sizes of the pieces, and nothing grows without
// bound.
func FuzzReceived(f *testing.F) {
	f.Add(append([]byte(preface), open(1)...), uint64(1))
	f.Add(append([]byte(preface), data(1, 20, true)...), uint64(2))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		whole, pieces := New(), New()
		err := whole.Received(text)
		random := rand.New(rand.NewPCG(seed, 0))
		var piecesErr error
		for rest := text; len(rest) > 0 && piecesErr == nil; {
			n := 1 + random.IntN(len(rest))
			piecesErr = pieces.Received(rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, err == nil, piecesErr == nil)
		if err == nil {
			require.Equal(t, whole.State(), pieces.State())
		}
		require.LessOrEqual(t, len(pieces.open), maxOpen+1)
		whole.Sent(text)
	})
}
