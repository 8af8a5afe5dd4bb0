package sys

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRetry(t *testing.T) {
	results := []error{unix.EINTR, unix.EINTR, nil, unix.EINTR}
	n, err := Retry(func() (int, error) {
		err := results[0]
		results = results[1:]
		return len(results), err
	})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = Retry(func() (int, error) { return -1, unix.EAGAIN })
	require.Equal(t, unix.EAGAIN, err)
}

func TestPread(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte("0123456789"), 0o600))
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	var p [4]byte
	for offset, want := range map[int64]string{0: "0123", 6: "6789", 8: "89", 10: "", 99: ""} {
		n, err := Pread(int(f.Fd()), p[:], offset)
		require.NoError(t, err)
		require.Equal(t, want, string(p[:n]))
	}
	_, err = Pread(-1, p[:], 0)
	require.ErrorIs(t, err, unix.EBADF)

	if _, err := PreadNoWait(int(f.Fd()), p[:], 0); err == unix.EOPNOTSUPP {
		t.Skip("this file system cannot tell")
	}
	eventually.True(t, func() bool { // a machine without free memory may evict the page
		_, err := os.ReadFile(name)
		require.NoError(t, err)
		n, err := PreadNoWait(int(f.Fd()), p[:], 3)
		return err == nil && n == 4
	})
	require.Equal(t, "3456", string(p[:]))
	n, err := PreadNoWait(int(f.Fd()), p[:], 7)
	require.True(t, err == nil && n == 3, "there are no more")
	_, err = PreadNoWait(-1, p[:], 0)
	require.ErrorIs(t, err, unix.EBADF)
}

func TestSendNoWaitTellsWhatIsWrong(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(pair[0])
	big := bytes.Repeat([]byte("x"), 4<<20)
	n, err := SendNoWait(uintptr(pair[0]), big, big, unix.MSG_NOSIGNAL)
	require.NoError(t, err)
	require.Less(t, n, len(big), "it takes what there is room for, and does not wait although the socket would")
	_, err = SendNoWait(uintptr(pair[0]), big, nil, unix.MSG_NOSIGNAL)
	require.Equal(t, unix.EAGAIN, err)
	require.NoError(t, unix.Close(pair[1]))
	_, err = SendNoWait(uintptr(pair[0]), big, nil, unix.MSG_NOSIGNAL)
	require.ErrorIs(t, err, unix.EPIPE)
}
