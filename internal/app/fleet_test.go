package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestAppliedFile: the number is overwritten in place, since a file that is renamed may be empty
// after a power failure. That of an earlier version, which was shorter, is read and replaced.
func TestAppliedFile(t *testing.T) {
	p := appliedFile{folder: t.TempDir()}
	p.follow("0123456789abcdef")
	path := filepath.Join(p.folder, appliedName)
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
	_, moved := p.loader(p.folder, "0123456789abcdef")
	require.False(t, moved)
	_, moved = p.loader(p.folder, "another log")
	require.True(t, moved)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.NoError(t, os.Truncate(path, 0))
	_, err = p.load()
	require.Error(t, err, "then it is not known what was purged")
}

// TestDiskFailures: a gateway starts without its cache on disk where the disk is at fault, and not
// where the configuration is.
func TestDiskFailures(t *testing.T) {
	for _, err := range []error{unix.EIO, unix.ENOSPC, unix.EROFS, unix.EBADMSG, unix.EUCLEAN} {
		require.True(t, isDiskFailure(&os.PathError{Op: "statat", Path: "fastdfs-gateway-cache", Err: err}), err)
	}
	require.False(t, isDiskFailure(&os.PathError{Op: "open", Path: "x", Err: unix.EACCES}))
}
