package sendfile

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// resident tells whether a byte of the file is in the page cache.
func resident(t *testing.T, f *os.File, offset int64) bool {
	t.Helper()
	var b [1]byte
	_, err := unix.Preadv2(int(f.Fd()), [][]byte{b[:]}, offset, unix.RWF_NOWAIT)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("the file system of the temporary folder does not tell what is in memory")
	}
	return err == nil
}

// evict makes a file cold.
func evict(t *testing.T, f *os.File) {
	t.Helper()
	require.NoError(t, f.Sync())
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	info, err := f.Stat()
	require.NoError(t, err)
	if resident(t, f, 0) || resident(t, f, info.Size()-1) {
		t.Skip("the file system of the temporary folder keeps its files in memory")
	}
}

// A cold file is read ahead of the sending by more than the kernel does by itself.
func TestColdFileIsReadAhead(t *testing.T) {
	src, _ := newSource(t, 32<<20)
	evict(t, src.File)
	server, client := pair(t, "tcp")
	require.NoError(t, server.(*net.TCPConn).SetWriteBuffer(64<<10))
	require.NoError(t, client.(*net.TCPConn).SetReadBuffer(64<<10))
	conn := paced(t, server, Pace{})
	done := make(chan error)
	go func() {
		_, err := conn.SendFile(src.Fd(), 0, 32<<20)
		done <- err
	}()
	require.Eventually(t, func() bool { return resident(t, src.File, 2*window-1) }, patience, 10*time.Millisecond)
	require.False(t, resident(t, src.File, 24<<20), "the client takes nothing: there is no need for more")
	require.NoError(t, client.Close())
	require.Error(t, <-done)
}

// With DropBehind a transfer leaves nothing behind; what lies beside it in the file stays.
func TestDropBehind(t *testing.T) {
	for _, drop := range []bool{false, true} {
		src, _ := newSource(t, 32<<20)
		evict(t, src.File)
		_, err := io.Copy(io.Discard, io.NewSectionReader(src.File, 0, 4096))
		require.NoError(t, err)
		server, client := pair(t, "tcp")
		require.NoError(t, client.(*net.TCPConn).SetReadBuffer(256<<10)) // what it has not read is in use
		received := make(chan int64)
		go func() {
			n, _ := io.Copy(io.Discard, client)
			received <- n
		}()
		conn := paced(t, server, Pace{})
		body := &Body{Conn: conn, Direct: true, Source: src, DropBehind: drop, Pieces: []Piece{{Offset: 8192, Length: 31 << 20}}}
		_, err = body.WriteTo(bufio.NewWriter(conn))
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		require.EqualValues(t, 31<<20, <-received)
		require.Equal(t, !drop, resident(t, src.File, 4<<20))
		require.Equal(t, !drop, resident(t, src.File, 16<<20))
		require.True(t, resident(t, src.File, 0), "a neighbour")
	}
}

// Advice costs a few calls for each window, and nothing for short stretches.
func TestAdviceByWindows(t *testing.T) {
	var p pages
	p.begin(100, window)
	p.about(-1, 100, window)
	require.EqualValues(t, 100, p.ahead)
	p.begin(100, 10*window)
	p.about(-1, 100, 10*window)
	require.EqualValues(t, 100+2*window, p.ahead)
	p.about(-1, 100+window-1, 9*window+1)
	require.EqualValues(t, 100+2*window, p.ahead)
	p.about(-1, 100+window, 9*window)
	require.EqualValues(t, 100+3*window, p.ahead)
	p.about(-1, 100+9*window, window)
	require.EqualValues(t, 100+10*window, p.ahead)
}
