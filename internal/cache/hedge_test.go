package cache

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSilentPeer: a dead gateway costs a first byte at most 500 ms. A living gateway that responds
// late causes no second download, and its bytes are used when they come before those of the
// storage.
func TestSilentPeer(t *testing.T) {
	const dead = time.Hour
	for name, test := range map[string]struct {
		ranked     []string                 // of the gateways when the file is requested; a has it before
		by         int                      // gateway that the client asks
		mute, late map[string]time.Duration // as in fleet
		first      time.Duration            // of the storage
		running    bool                     // a is still fetching
		fetches    int64
		most       time.Duration // until the first byte
	}{
		"dead owner":        {[]string{"a", "b", "c"}, 1, map[string]time.Duration{"a": dead}, nil, 0, false, 2, second / 2},
		"two dead gateways": {[]string{"a", "b", "c"}, 2, map[string]time.Duration{"a": dead, "b": dead}, nil, 0, false, 2, second / 2},
		"dead former owner": {[]string{"b", "a", "c"}, 1, map[string]time.Duration{"a": dead}, nil, 0, false, 2, second / 2},
		"starved owner":     {[]string{"a", "b", "c"}, 1, nil, map[string]time.Duration{"a": 5 * second}, 0, false, 1, 5 * second},
		"owner starved for a moment": {[]string{"a", "b", "c"}, 1, map[string]time.Duration{"a": 440 * time.Millisecond},
			nil, 0, false, 1, second / 2},
		"starved former owner": {[]string{"b", "a", "c"}, 1, nil, map[string]time.Duration{"a": second}, 0, false, 1, second},
		"former owner starved for a moment": {[]string{"b", "a", "c"}, 1,
			map[string]time.Duration{"a": 440 * time.Millisecond}, nil, 0, false, 1, second / 2},
		"silent owner that fetches": {[]string{"a", "b", "c"}, 1, map[string]time.Duration{"a": 2 * second}, nil,
			3 * second, true, 1, 4 * second},
		"copy before the storage": {[]string{"b", "a", "c"}, 1, map[string]time.Duration{"a": second}, nil,
			3 * second, false, 2, second},
	} {
		bubble(t, name, func(t *testing.T) {
			o := newOrigin(testFile(1), 1<<20)
			o.first = test.first
			f := newFleet()
			list := gateways(t, f, 3, Options{})
			before := make(chan result, 1)
			go func() { before <- get(background, list[0], o) }()
			if synctest.Wait(); !test.running {
				requireWhole(t, o, <-before)
			}
			f.do(func() { f.names, f.mute, f.late = test.ranked, test.mute, test.late })
			r := get(background, list[test.by], o)
			requireWhole(t, o, r)
			require.LessOrEqual(t, r.first, test.most)
			require.Equal(t, test.fetches, o.fetches.Load())
			if test.fetches == 1 || name == "copy before the storage" {
				require.EqualValues(t, len(o.content), o.served.Load(), "the storage has sent the content once")
			}
			synctest.Wait()
			require.True(t, list[test.by].waiterRoom.all.tryAcquire(list[test.by].waiterRoom.all.size), "all was given back")
		})
	}
}
