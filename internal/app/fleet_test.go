package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestObeyedFile: the number is overwritten in place, since a file that is renamed may be empty
// after a power failure. That of an earlier version, which was shorter, is read and replaced.
func TestObeyedFile(t *testing.T) {
	p := obeyedFile{folder: t.TempDir()}
	path := filepath.Join(p.folder, obeyedName)
	_, err := p.load()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("12"), 0o600))
	before, err := os.Stat(path)
	require.NoError(t, err)
	for _, n := range []int64{12, 1732280000123456, 1, 1<<53 - 1, 0} {
		if n != 12 {
			require.NoError(t, p.store(n))
		}
		got, err := p.load()
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.NoError(t, os.Truncate(path, 0))
	_, err = p.load()
	require.Error(t, err, "then it is not known what was purged")
}
