package fleet

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAppliedFile: the fence is overwritten in place, since a file that is renamed may be empty
// after a power failure. The file of an earlier version is read and replaced.
// Behind a fence of another log, all purges are to be applied.
func TestAppliedFile(t *testing.T) {
	synced := func() error { return nil }
	p := NewAppliedFile(t.TempDir(), "0123456789abcdef", synced)
	path, earlier := filepath.Join(p.folder, appliedName), filepath.Join(p.folder, earlierName)
	_, err := p.Load()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(earlier, []byte("12"), 0o600))
	got, err := p.Load()
	require.NoError(t, err)
	require.EqualValues(t, 12, got)
	require.NoError(t, p.Store(13))
	require.NoFileExists(t, earlier)
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
	got, err = NewAppliedFile(p.folder, "fedcba9876543210", synced).Load()
	require.NoError(t, err)
	require.Zero(t, got)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.NoError(t, os.Truncate(path, 0))
	_, err = p.Load()
	require.Error(t, err, "then it is not known what was purged")
}

// TestLogOfEarlierVersions: the file of the version before named the log of a fleet like this one,
// and an upgrade finds it again.
func TestLogOfEarlierVersions(t *testing.T) {
	f, err := New(Options{Mode: "single", Addresses: []string{"127.0.0.1:6379"}, KeyPrefix: "fdfs:", Name: "a",
		LockTTL: time.Second})
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, "4bbe256de7f4115e", f.Log())
	p := NewAppliedFile(t.TempDir(), f.Log(), func() error { return nil })
	require.NoError(t, os.WriteFile(filepath.Join(p.folder, earlierName), []byte("0000000000000012 4bbe256de7f4115e\n"),
		0o600))
	got, err := p.Load()
	require.NoError(t, err)
	require.EqualValues(t, 12, got)
}
