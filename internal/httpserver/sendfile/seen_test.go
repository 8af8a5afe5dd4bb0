package sendfile

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRecentForgetsAndTellsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(recent)
		require.False(t, r.lately(7, 0))
		r.note(7, 100)
		require.True(t, r.lately(7, 0), "the same chunk")
		require.True(t, r.lately(7, chunk-1))
		require.False(t, r.lately(7, chunk), "the next one")
		require.False(t, r.lately(8, 0), "another file")
		time.Sleep(2 * time.Second)
		require.False(t, r.lately(7, 0), "that was long ago")
	})
}

func TestCachedPage(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, make([]byte, 10_000), 0o600))
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	if _, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, 1)}, 0, unix.RWF_NOWAIT); err == unix.EOPNOTSUPP {
		t.Skip("this file system cannot tell")
	}
	eventually.True(t, func() bool { // a machine with little free memory may evict the page
		_, err := os.ReadFile(name)
		return err == nil && cachedPage(int(f.Fd()), 9999)
	}, "it has just been read")
	require.False(t, cachedPage(int(f.Fd()), 10_000), "behind its end")
	require.False(t, cachedPage(-1, 0))
}
