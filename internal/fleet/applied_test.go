package fleet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAppliedFile: the fence is overwritten in place, since a file that is renamed may be empty
// after a power failure. The fence of another log is loaded as 0, so that all purges are applied.
func TestAppliedFile(t *testing.T) {
	synced := func() error { return nil }
	p := NewAppliedFile(t.TempDir(), "0123456789abcdef", synced)
	path := filepath.Join(p.folder, appliedName)
	_, err := p.Load()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, p.Store(13))
	before, err := os.Stat(path)
	require.NoError(t, err)
	for _, n := range []int64{13, 1732280000123456, 1, 1<<53 - 1, 0, 7} {
		if n != 13 {
			require.NoError(t, p.Store(n))
		}
		got, err := p.Load()
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	got, err := NewAppliedFile(p.folder, "fedcba9876543210", synced).Load()
	require.NoError(t, err)
	require.Zero(t, got)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.NoError(t, os.Truncate(path, 0))
	_, err = p.Load()
	require.Error(t, err, "then it is not known what was purged")
}

// TestAppliedFileClosed: Close does not wait for a disk that hangs, and the fence that is being
// stored then is not kept.
func TestAppliedFileClosed(t *testing.T) {
	var p *AppliedFile
	p = NewAppliedFile(t.TempDir(), "0123456789abcdef", func() error { p.Close(); return nil })
	require.NoError(t, p.Store(13))
	_, err := p.Load()
	require.ErrorIs(t, err, os.ErrNotExist)
}
