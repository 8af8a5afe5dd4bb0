package cachelock_test

import (
	"testing"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// TestAllOrNothing: one script acquires several locks. A rejected request acquires none of them,
// not even those before the held one.
func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	c := cachelock.New(redistest.Shared(t).Client(), cachelock.Options{Prefix: t.Name()})
	defer c.Close()
	held, err := c.Acquire(t.Context(), "b", cachelock.LockOptions{})
	require.NoError(t, err)
	_, err = c.AcquireAll(t.Context(), []string{"a", "b", "c"}, cachelock.LockOptions{})
	require.ErrorIs(t, err, cachelock.ErrHeld)
	for _, key := range []string{"a", "c"} {
		free, err := c.Acquire(t.Context(), key, cachelock.LockOptions{})
		require.NoError(t, err, key)
		require.NoError(t, free.Release(t.Context()))
	}
	require.NoError(t, held.Release(t.Context()))
}
