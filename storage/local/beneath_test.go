package local

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestChooseOpener: walk is used if openat2 fails, by a filter of system calls or in a kernel
// without its flags; else openat2 is used.
func TestChooseOpener(t *testing.T) {
	same := func(a, b opener) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	before := descriptors(t)
	for _, errno := range []unix.Errno{unix.EACCES, unix.EPERM, unix.ENOSYS, unix.EINVAL, unix.E2BIG} {
		open, err := chooseOpener(func(int, string, *unix.OpenHow) (int, error) { return -1, errno })
		require.True(t, same(open, walk), errno)
		require.ErrorIs(t, err, errno)
	}
	calls := 0
	open, err := chooseOpener(func(dirfd int, name string, how *unix.OpenHow) (int, error) {
		if calls++; calls == 1 {
			return -1, unix.EINTR
		}
		require.Equal(t, readHow.Resolve, how.Resolve)
		return unix.Openat(dirfd, name, int(how.Flags), 0)
	})
	require.NoError(t, err)
	require.True(t, same(open, openat2))
	require.Equal(t, before, descriptors(t), "descriptors left open")
}
