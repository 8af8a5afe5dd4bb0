package app

import (
	"os"
	"path/filepath"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestAppliedFile: the number is overwritten in place, since a file that is renamed may be empty
// after a power failure. That of an earlier version, which was shorter, is read and replaced.
func TestAppliedFile(t *testing.T) {
	p := appliedFile{folder: t.TempDir(), sync: func() error { return nil }}
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

// TestStopKeepsNumber: the number beside the disk cache does not tell of purges that arrive when
// that was closed.
func TestStopKeepsNumber(t *testing.T) {
	one := prepare(t, fleetLines(t, redistest.Start(t).Addr())...)
	require.NoError(t, one.Start())
	one.purges(newRemoteFile(t), 1)
	number, err := one.applied.load()
	require.NoError(t, err)
	require.NoError(t, one.Stop())
	require.NoError(t, one.applied.store(number+1))
	after, err := one.applied.load()
	require.NoError(t, err)
	require.Equal(t, number, after)
}

// TestRestartToLog: a gateway that starts with another Redis than before drops what was purged
// there, also before the last purge that it has applied of the one before; and the others keep what
// they have.
func TestRestartToLog(t *testing.T) {
	from, to := redistest.Start(t), redistest.Start(t)
	lines := fleetLines(t, from.Addr())
	one := prepare(t, lines...)
	require.NoError(t, one.Start())
	other := start(t, fleetLines(t, to.Addr())...)
	purged, kept, others := newRemoteFile(t), newRemoteFile(t), newRemoteFile(t)
	one.costs(1, purged)
	one.costs(1, kept)
	eventually.True(t, func() bool { return one.counts().cache.Disk.Entries == 2 })
	other.costs(1, others)
	other.purges(purged, 1)
	one.purges(newRemoteFile(t), 1)
	require.NoError(t, one.Stop())
	lines[1] = "addresses = " + to.Addr()
	one.write(lines...)
	one.App = New(Options{Config: one.conf, Version: "test"})
	require.NoError(t, one.Start())
	defer func() { require.NoError(t, one.Stop()) }()
	one.costs(1, purged)
	one.costs(0, kept)
	other.purges(newRemoteFile(t), 2)
	other.costs(0, others)
}
