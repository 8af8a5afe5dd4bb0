package cache

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSilentPeer: a dead gateway costs a first byte at most 500 ms. A living gateway that responds
// late causes no second download, and its bytes are used when they come before those of the
// storage.
func TestSilentPeer(t *testing.T) {
	type delays = map[string]time.Duration
	const (
		dead  = time.Hour
		short = fetchAfter - 10*time.Millisecond
	)
	asOwner, asNext := []string{"a", "b", "c"}, []string{"b", "a", "c"}
	for name, test := range map[string]struct {
		ranked     []string      // of the gateways when the file is requested; a has it before
		by         int           // gateway that the client asks
		mute, late delays        // as in fleet
		usual      time.Duration // the same
		first      time.Duration // of the storage
		running    bool          // a is still fetching
		fetches    int64
		most       time.Duration // until the first byte
	}{
		"dead owner": {ranked: asOwner, by: 1, mute: delays{"a": dead}, fetches: 2, most: second / 2},
		"two dead gateways": {ranked: asOwner, by: 2, mute: delays{"a": dead, "b": dead}, fetches: 2,
			most: second / 2},
		"dead former owner":   {ranked: asNext, by: 1, mute: delays{"a": dead}, fetches: 2, most: second / 2},
		"late owner":          {ranked: asOwner, by: 1, late: delays{"a": 5 * second}, fetches: 1, most: 5 * second},
		"late former owner":   {ranked: asNext, by: 1, late: delays{"a": second}, fetches: 1, most: second},
		"silent owner":        {ranked: asOwner, by: 1, mute: delays{"a": short}, fetches: 1, most: short},
		"silent former owner": {ranked: asNext, by: 1, mute: delays{"a": short}, fetches: 1, most: short},
		"silent former owner, on a busy host": {ranked: asNext, by: 1, mute: delays{"a": short}, usual: 2 * hedgeTick,
			fetches: 1, most: short},
		"dead former owner, on a busy host": {ranked: asNext, by: 1, mute: delays{"a": dead}, usual: 2 * hedgeTick,
			fetches: 2, most: second / 2},
		"silent owner that fetches": {ranked: asOwner, by: 1, mute: delays{"a": short}, first: 3 * second,
			running: true, fetches: 1, most: 4 * second},
		"dead owner that fetches": {ranked: asOwner, by: 1, mute: delays{"a": dead}, first: 3 * second,
			running: true, fetches: 2, most: 3*second + second/2},
		"copy before the storage": {ranked: asNext, by: 1, mute: delays{"a": second}, first: 3 * second, fetches: 2,
			most: second},
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
			f.do(func() { f.names, f.mute, f.late, f.usual = test.ranked, test.mute, test.late, test.usual })
			r := get(background, list[test.by], o)
			requireWhole(t, o, r)
			require.LessOrEqual(t, r.first, test.most)
			require.Equal(t, test.fetches, o.fetches.Load())
			if test.fetches == 1 || name == "copy before the storage" {
				require.EqualValues(t, len(o.content), o.served.Load(), "the storage has sent the content once")
			}
			synctest.Wait()
			room := list[test.by].waiterRoom.all
			require.True(t, room.tryAcquireBytes(room.size), "all was given back")
		})
	}
}

// TestBlackLinks: if no gateway hears another one, but all reach Redis, each of them has the first
// byte after 500 ms, besides the time of the storage, although others hold the lease until the last
// byte.
func TestBlackLinks(t *testing.T) {
	for _, n := range []int{2, 6} {
		bubble(t, fmt.Sprint(n), func(t *testing.T) {
			o := newOrigin(testFile(1), 1<<20)
			o.first, o.whole = second, second
			f := newFleet()
			list := gateways(t, f, n, Options{})
			f.do(func() {
				for _, name := range f.names {
					f.mute[name] = time.Hour
				}
			})
			for _, r := range manyClients(list, o, n) {
				requireWhole(t, o, r)
				require.LessOrEqual(t, r.first-o.first, second/2+o.whole/16)
			}
		})
	}
}
