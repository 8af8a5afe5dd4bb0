package sendfile

import (
	"bufio"
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// stampedWriter records the times at which bytes arrive.
type stampedWriter struct {
	began time.Time
	total int64
	at    []stamp
	stall func(total int64) // delays the client before a write
}

type stamp struct {
	after time.Duration
	total int64
}

func (w *stampedWriter) Write(p []byte) (int, error) {
	if w.stall != nil {
		w.stall(w.total)
	}
	w.total += int64(len(p))
	w.at = append(w.at, stamp{time.Since(w.began), w.total})
	return len(p), nil
}

// TestLimit: at every moment the client has the bytes that the rate allows, to within a slice. The
// whole body takes size/rate.
func TestLimit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		size  int
		limit Limit
	}{
		"slow":             {3000, Limit{Rate: 300}},
		"one byte a while": {4, Limit{Rate: 2}},
		"medium":           {1 << 20, Limit{Rate: 100 << 10}},
		"fast":             {64 << 20, Limit{Rate: 20 << 20}},
		"after":            {1 << 20, Limit{Rate: 100 << 10, After: 300 << 10}},
		"after all":        {1 << 20, Limit{Rate: 1, After: 1 << 20}},
		"less than After":  {1 << 10, Limit{Rate: 1, After: 1 << 20}},
		"none":             {1 << 20, Limit{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &stampedWriter{began: time.Now()}
				body := &Body{File: make(memory, tt.size), Limit: tt.limit, Pieces: []Piece{{Length: int64(tt.size)}}}
				_, err := body.WriteTo(bufio.NewWriter(w))
				require.NoError(t, err)
				require.EqualValues(t, tt.size, w.total)
				limited := max(float64(int64(tt.size)-tt.limit.After), 0)
				if tt.limit.Rate == 0 || limited == 0 {
					require.Zero(t, time.Since(w.began))
					return
				}
				rate := float64(tt.limit.Rate)
				require.InDelta(t, limited/rate, time.Since(w.began).Seconds(), 0.02+1/rate)
				for _, s := range w.at {
					want := float64(tt.limit.After) + rate*s.after.Seconds()
					require.InDelta(t, min(want, float64(tt.size)), s.total, rate/slicesPerSecond+1, "after %v",
						s.after)
				}
			})
		})
	}
}

// TestLimitShared: bodies with one Pacer have together the bytes that the rate allows, and each has
// its part. A body that begins later waits for its turn.
func TestLimitShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, size, bodies = 10_000, 50_000, 5
		var pacer Pacer
		var total atomic.Int64
		var sending sync.WaitGroup
		began := time.Now()
		for range bodies {
			sending.Go(func() {
				w := &stampedWriter{began: began, stall: func(int64) {
					require.LessOrEqual(t, float64(total.Load()), rate*(time.Since(began).Seconds()+0.2))
				}}
				body := &Body{File: make(memory, size), Limit: Limit{Rate: rate, Pacer: &pacer},
					Pieces: []Piece{{Length: size}}}
				_, err := body.WriteTo(flushed{bufio.NewWriter(w), &total})
				require.NoError(t, err)
				require.InDelta(t, bodies*size/rate, time.Since(began).Seconds(), 1)
			})
		}
		sending.Wait()
		require.InDelta(t, bodies*size/rate, time.Since(began).Seconds(), 0.1)
	})
}

// flushed counts the bytes of several writers.
type flushed struct {
	*bufio.Writer
	total *atomic.Int64
}

func (f flushed) Write(p []byte) (int, error) {
	f.total.Add(int64(len(p)))
	return f.Writer.Write(p)
}

// TestLimitAfterAStall: after a stall, a client catches up by the bytes of maxBehind, not by all
// that it has missed.
func TestLimitAfterAStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, size, stall = 10_000, 100_000, 20 * time.Second
		stalled := false
		w := &stampedWriter{began: time.Now(), stall: func(total int64) {
			if total >= size/2 && !stalled {
				stalled = true
				time.Sleep(stall)
			}
		}}
		body := &Body{File: make(memory, size), Limit: Limit{Rate: rate}, Pieces: []Piece{{Length: size}}}
		_, err := body.WriteTo(bufio.NewWriter(w))
		require.NoError(t, err)
		require.InDelta(t, size/rate+stall.Seconds()-maxBehind.Seconds(), time.Since(w.began).Seconds(), 0.3)
	})
}

// TestLimitLifted: when the limit is lifted, its wait ends at once, and the rest is sent without a
// limit.
func TestLimitLifted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lifted := make(chan struct{})
		time.AfterFunc(2500*time.Millisecond, func() { close(lifted) })
		w := &stampedWriter{began: time.Now()}
		body := &Body{File: make(memory, 100), Limit: Limit{Rate: 1, Lifted: lifted}, Pieces: []Piece{{Length: 100}}}
		_, err := body.WriteTo(bufio.NewWriter(w))
		require.NoError(t, err)
		require.Equal(t, 2500*time.Millisecond, time.Since(w.began))
		require.EqualValues(t, 100, w.total)
	})
}

// TestLimitBySendfile: bytes under a limit are sent by sendfile too, not copied through the
// process.
func TestLimitBySendfile(t *testing.T) {
	const size, rate = 64 << 10, 16 << 10
	src, content := newSource(t, size)
	synctest.Test(t, func(t *testing.T) {
		server, client := pair(t, "tcp") // the buffers hold the whole body
		conn, err := NewConn(server, Pace{MinRate: 1 << 20, Window: time.Second})
		require.NoError(t, err)
		var result Result
		body := &Body{Conn: conn, Direct: true, File: src, Limit: Limit{Rate: rate},
			Pieces: []Piece{{Head: []byte("head"), Length: size}}, Done: func(r Result) { result = r }}
		began := time.Now()
		_, err = body.WriteTo(bufio.NewWriter(conn))
		require.NoError(t, err)
		require.InDelta(t, float64(size)/rate, time.Since(began).Seconds(), 0.05)
		body.Close()
		require.EqualValues(t, size, result.BySendfile)
		require.NoError(t, server.Close())
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		require.True(t, bytes.Equal(append([]byte("head"), content...), got))
	})
}
