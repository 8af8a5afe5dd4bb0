package app

import (
	"sync/atomic"
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
	require.EqualValues(t, 7<<20, r.cache.Stats().Memory.Budget, "an eighth is for metadata")
}

// TestRetiredPartsGo: what a reload has replaced is closed once, and not kept.
func TestRetiredPartsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{})
		kept := func() int {
			a.loading.Lock()
			defer a.loading.Unlock()
			return len(a.retired)
		}
		var busy, ended atomic.Int64
		busy.Store(1)
		a.retire(func() { ended.Add(1) }, busy.Load)
		time.Sleep(retireAfter + time.Second)
		synctest.Wait()
		require.Zero(t, ended.Load())
		require.Equal(t, 1, kept())
		busy.Store(0)
		time.Sleep(retireAfter)
		synctest.Wait()
		require.EqualValues(t, 1, ended.Load())
		require.Zero(t, kept())
	})
}
