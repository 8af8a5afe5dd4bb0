package stall

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fake is a source whose reads take the times that a test sets.
type fake struct {
	takes   []time.Duration // of the reads in order; the last one is repeated
	stopped chan struct{}
	broken  error // the result of a read instead of a byte; nil = none
}

func (f *fake) read(p []byte) (int, error) {
	d := f.takes[0]
	if len(f.takes) > 1 {
		f.takes = f.takes[1:]
	}
	select {
	case <-time.After(d):
		if f.broken != nil {
			return 0, f.broken
		}
		p[0] = 1
		return 1, nil
	case <-f.stopped:
		return 0, errors.New("stopped")
	}
}

// watch returns a Watch of the source. Its search returns source 7 and err after the time takes;
// dropped sums the sources that were passed to Drop.
func (f *fake) watch(ctx context.Context, takes time.Duration, err error) (w *Watch[int], dropped *int) {
	f.stopped, dropped = make(chan struct{}), new(int)
	return New(ctx, Options[int]{
		Read: f.read,
		Find: func(ctx context.Context) (int, error) {
			select {
			case <-time.After(takes):
				return 7, err
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		},
		Stop: func() { close(f.stopped) },
		Drop: func(n int) { *dropped += n },
	}), dropped
}

func TestRead(t *testing.T) {
	errGone, never := errors.New("gone"), time.Hour
	for name, test := range map[string]struct {
		takes  []time.Duration // of the reads; all but the last one succeed
		broken error
		search time.Duration
		err    error // of the search
		want   Found[int]
		failed error
		after  time.Duration // of the last read
	}{
		"fast": {takes: []time.Duration{0, time.Second}, search: 0, after: time.Second},
		"frozen": {takes: []time.Duration{0, never}, search: time.Second,
			want: Found[int]{7, true}, after: 3 * time.Second},
		"at the first byte": {takes: []time.Duration{never}, want: Found[int]{7, true},
			after: 2 * time.Second},
		"slow, and nobody else": {takes: []time.Duration{time.Minute}, err: errGone, after: time.Minute},
		"slow, and faster than others": {takes: []time.Duration{3 * time.Second}, search: time.Minute,
			after: 3 * time.Second},
		"always slow": {takes: []time.Duration{time.Second, time.Second, time.Second, time.Second,
			3 * time.Second}, search: 0, want: Found[int]{7, true}, after: 2361600 * time.Microsecond},
		"breaks while others are looked for": {
			takes: []time.Duration{3 * time.Second}, broken: errGone, search: 4 * time.Second,
			want: Found[int]{7, true}, after: 6 * time.Second},
		"breaks, and nobody else": {takes: []time.Duration{3 * time.Second}, broken: errGone, search: 4 * time.Second,
			err: errGone, failed: errGone, after: 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{takes: test.takes, broken: test.broken}
				w, dropped := f.watch(t.Context(), test.search, test.err)
				p := make([]byte, 10)
				for range len(test.takes) - 1 {
					n, next, err := w.Read(p)
					require.NoError(t, err)
					require.Equal(t, 1, n)
					require.False(t, next.OK)
				}
				began := time.Now()
				n, next, err := w.Read(p)
				require.Equal(t, test.failed, err)
				require.Equal(t, test.want, next)
				require.Equal(t, !test.want.OK && err == nil, n == 1)
				require.Equal(t, test.after, time.Since(began))
				require.Zero(t, *dropped)
			})
		})
	}
}

// TestBothAtOnce: if the search and the read end at the same moment, either Read returns bytes and
// the source that was found is dropped, or Read returns the other source.
func TestBothAtOnce(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{takes: []time.Duration{3 * time.Second}}
			w, dropped := f.watch(t.Context(), time.Second, nil)
			n, next, err := w.Read(make([]byte, 1))
			require.NoError(t, err)
			if next.OK {
				require.Zero(t, n)
				require.Zero(t, *dropped)
				return
			}
			require.Equal(t, 1, n)
			if *dropped != 7 {
				require.Zero(t, *dropped) // the search ended without a source
			}
		})
	}
}

// TestEnd: the end of the download ends the search too.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &fake{takes: []time.Duration{10 * time.Second}, broken: context.Canceled}
		w, _ := f.watch(ctx, time.Hour, nil)
		time.AfterFunc(5*time.Second, cancel)
		_, next, err := w.Read(make([]byte, 1))
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, next.OK)
	})
}

// TestPanics: a panic in one of the functions ends neither the process nor the read.
func TestPanics(t *testing.T) {
	for name, test := range map[string]struct {
		search time.Duration
		change func(o *Options[int])
		next   bool
	}{
		"find": {change: func(o *Options[int]) { o.Find = func(context.Context) (int, error) { panic("bug") } }},
		"stop": {change: func(o *Options[int]) { o.Stop = func() { panic("bug") } }, next: true},
		"drop": {search: 2 * time.Second, change: func(o *Options[int]) {
			find := o.Find
			o.Find = func(context.Context) (int, error) { return find(context.Background()) } // returns too late
			o.Drop = func(int) { panic("bug") }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := (&fake{takes: []time.Duration{3 * time.Second}}).watch(t.Context(), test.search, nil)
				test.change(&w.o)
				n, next, err := w.Read(make([]byte, 1))
				require.NoError(t, err)
				require.Equal(t, test.next, next.OK)
				require.Equal(t, !test.next, n == 1)
			})
		})
	}
}

// TestSlow: a source that sends less than LowRate is replaced after a window. Without another
// source the download continues with the slow one, and fails only below MinRate, after three
// windows. The time between two calls of Read belongs to the reader and does not count.
func TestSlow(t *testing.T) {
	errNone := errors.New("no other source")
	for name, test := range map[string]struct {
		takes, pause time.Duration // of a read, and between two reads
		bytes        int           // of each read
		skipped      int64         // by each read
		err          error         // of the search
		next         bool
		failed       error
		after        time.Duration // 0 = the source is kept for an hour
	}{
		"another one":     {takes: time.Second, bytes: 20, next: true, after: Window},
		"nobody else":     {takes: time.Second, bytes: 20, err: errNone, failed: ErrSlow, after: failAfter * Window},
		"fast enough":     {takes: time.Second, bytes: LowRate},
		"slow reader":     {takes: time.Millisecond, pause: time.Minute, bytes: 20},
		"barely too slow": {takes: 2 * time.Second, bytes: 2*LowRate - 1, next: true, after: Window},
		"skips fast":      {takes: time.Second, skipped: LowRate},
		"skips slowly":    {takes: time.Second, skipped: 20, next: true, after: Window},
		"slow, and alone": {takes: time.Second, bytes: MinRate, err: errNone},
		"drips, and alone": {takes: time.Second, bytes: MinRate - 1, err: errNone, failed: ErrSlow,
			after: failAfter * Window},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := New(t.Context(), Options[int]{
					Read: func(p []byte) (int, error) { time.Sleep(test.takes); return test.bytes, nil },
					Find: func(context.Context) (int, error) { return 7, test.err },
					Stop: func() {}, Drop: func(int) {},
					Skipped: func() int64 { return test.skipped },
					Floor:   time.Hour,
				})
				began := time.Now()
				for time.Since(began) < time.Hour {
					n, next, err := w.Read(make([]byte, 4*LowRate))
					if next.OK || err != nil {
						require.Equal(t, test.next, next.OK)
						require.ErrorIs(t, err, test.failed)
						require.Zero(t, n)
						require.Equal(t, test.after, time.Since(began))
						return
					}
					time.Sleep(test.pause)
				}
				require.Zero(t, test.after)
			})
		})
	}
}

// TestSkippedEndsSearch: bytes that a read receives and skips end the search for another source.
func TestSkippedEndsSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t.Context(), Options[int]{
			Read: func([]byte) (int, error) { time.Sleep(Floor + time.Second); return 0, nil },
			Find: func(ctx context.Context) (int, error) {
				select {
				case <-time.After(time.Minute):
					return 7, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			},
			Stop: func() {}, Drop: func(int) {},
			Skipped: func() int64 { return 1 },
		})
		began := time.Now()
		_, next, err := w.Read(make([]byte, 1))
		require.NoError(t, err)
		require.False(t, next.OK)
		require.Equal(t, Floor+time.Second, time.Since(began))
	})
}

// TestLateTimer: if a timer fires late because the process did not run, the current source first
// gets time to return the bytes that have arrived. The search begins only after that time.
func TestLateTimer(t *testing.T) {
	for name, c := range map[string]struct {
		by     time.Duration // delay of the timer
		readIn time.Duration // time until Read has bytes
		search bool
	}{
		"in time":               {search: true},
		"late, bytes are there": {by: time.Second},
		"late, no byte comes":   {by: time.Second, readIn: time.Second, search: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				searched := false
				w := New(t.Context(), Options[int]{
					Find: func(context.Context) (int, error) { searched = true; return 7, nil },
					Stop: func() {}, Drop: func(int) {},
				})
				w.due = time.Now().Add(-c.by)
				go w.search()
				w.makeChannels()
				end := <-w.begun
				if c.by > 0 {
					time.Sleep(c.readIn)
					end()
				}
				require.Equal(t, c.search, (<-w.found).OK)
				require.Equal(t, c.search, searched)
			})
		})
	}
}
