package app

import (
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCollectEveryBoundsGrowth(t *testing.T) {
	require.Equal(t, 400, collectEvery(5<<20))
	require.Equal(t, 200, collectEvery(20<<20))
	require.Equal(t, 100, collectEvery(500<<20))
	for live := uint64(1 << 20); live < 100<<20; live += 1 << 20 {
		require.LessOrEqual(t, live*uint64(collectEvery(live))/100, uint64(100<<20), "%d bytes", live)
	}
}

func TestTuneGC(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	require.Positive(t, liveBytes())
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("GOGC", "")
		tuneFor(2*gcLookEvery, notMoved)
	})
	require.Equal(t, collectEvery(liveBytes()), debug.SetGCPercent(100))
}

func TestTuneGCLeavesTheOperatorsChoice(t *testing.T) {
	t.Setenv("GOGC", "70")
	before := debug.SetGCPercent(70)
	defer debug.SetGCPercent(before)
	synctest.Test(t, func(t *testing.T) { tuneFor(2*gcLookEvery, notMoved) })
	require.Equal(t, 70, debug.SetGCPercent(70))
}

func notMoved() uint64 { return 0 }

// tuneFor runs tuneGC for the duration d.
func tuneFor(d time.Duration, moved func() uint64) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tuneGC(stop, moved)
	}()
	time.Sleep(d)
	close(stop)
	<-ended
}

// TestTuneGCCollectsWhatWasMoved: bytes that were moved out of the heap are collected soon, even if
// nothing is allocated.
func TestTuneGCCollectsWhatWasMoved(t *testing.T) {
	t.Setenv("GOGC", "off")
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	collections := func(each uint64) uint32 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		synctest.Test(t, func(t *testing.T) {
			sum := uint64(0)
			tuneFor(10*gcLookEvery+gcLookEvery/2, func() uint64 { sum += each; return sum })
		})
		runtime.ReadMemStats(&after)
		return after.NumGC - before.NumGC
	}
	require.EqualValues(t, 11, collections(gcMoved), "at each look")
	require.EqualValues(t, 5, collections(gcMoved/2), "at every other")
	require.Zero(t, collections(0))
}
