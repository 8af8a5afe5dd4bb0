package app

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReloadAdjustsCache: budgets and times of the cache need no restart.
func TestReloadAdjustsCache(t *testing.T) {
	r := start(t)
	r.write("[cache]", "memory_max = 8MB", "ttl = 7s")
	require.NoError(t, r.Reload())
	require.Empty(t, r.Pending())
	require.EqualValues(t, 7<<20, r.cache.Stats().Memory.Budget, "an eighth is for facts")
}

// TestRetiredPartsGo: what a reload has replaced is closed once, and not kept.
func TestRetiredPartsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, busy, ended := New(Options{}), int64(1), 0
		a.retire(func() { ended++ }, func() int64 { return busy })
		time.Sleep(retireAfter + time.Second)
		synctest.Wait()
		require.Zero(t, ended)
		require.Len(t, a.retired, 1)
		busy = 0
		time.Sleep(retireAfter)
		synctest.Wait()
		require.Equal(t, 1, ended)
		require.Empty(t, a.retired)
	})
}
