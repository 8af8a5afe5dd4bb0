package main

import (
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
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			tuneGC(stop)
		}()
		time.Sleep(2 * gcLookEvery)
		close(stop)
		<-ended
	})
	require.Equal(t, collectEvery(liveBytes()), debug.SetGCPercent(100))
}

func TestTuneGCLeavesTheOperatorsChoice(t *testing.T) {
	t.Setenv("GOGC", "70")
	before := debug.SetGCPercent(70)
	defer debug.SetGCPercent(before)
	tuneGC(nil) // returns at once
	require.Equal(t, 70, debug.SetGCPercent(70))
}
