package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestStatNoWait(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "data", "00", "0A")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	file := filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(file, []byte("content"), 0o600))
	require.NoError(t, os.Link(file, filepath.Join(folder, "other"))) // so that all fields of its identity differ
	require.NoError(t, os.Chtimes(file, time.Time{}, time.Unix(1_700_000_000, 123_456_789)))
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(folder, "link")))
	require.NoError(t, os.Symlink("/", filepath.Join(root, "data", "01")))
	d, err := openDataDir(root)
	require.NoError(t, err)
	defer unix.Close(d.fd)
	for name, want := range map[string]bool{"00/0A/file": true, "00/0A/link": true, "00/0A/none": false,
		"00/0B/none": false} {
		skipUnlessCached(t, d.fd, name)
		eventually.True(t, func() bool { // the kernel may evict the name, or mount at the same time
			var st unix.Stat_t
			blocking := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) // caches the name
			seen, sure, err := d.statNoWait(name)
			return sure && (err == nil) == want && (!want || blocking == nil && seen == identityOf(&st))
		}, name)
	}
	for _, name := range []string{"01/etc/passwd", "../data/00/0A/none/", strings.Repeat("x", longestName),
		"00/0A/file/none"} {
		_, sure, err := d.statNoWait(name)
		require.NoError(t, err, name)
		require.False(t, sure, "only the disk can tell of %q", name)
	}
}

// skipUnlessCached skips the test if the kernel or the file system cannot look up a name in memory.
func skipUnlessCached(t *testing.T, dirfd int, name string) {
	t.Helper()
	var st unix.Stat_t
	err := error(unix.EAGAIN)
	for began := time.Now(); err == unix.EAGAIN && time.Since(began) < eventually.Limit; {
		_ = unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		var fd int
		if fd, err = unix.Openat2(dirfd, name, &noWaitHow); err == nil {
			require.NoError(t, unix.Close(fd))
		}
	}
	if err != nil && err != unix.ENOENT {
		t.Skipf("SKIPPED: names cannot be looked up in memory here: %v", err)
	}
}
