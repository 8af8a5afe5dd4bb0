package sendfile

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// residentPart returns the fraction of a range of the file that is in the page cache. It uses
// mincore(2), which changes nothing. A read that does not wait would report the same, but makes the
// kernel fetch the missing pages.
func residentPart(t *testing.T, f *os.File, offset int64, length int) float64 {
	t.Helper()
	stretch, err := unix.Mmap(int(f.Fd()), offset, length, unix.PROT_READ, unix.MAP_SHARED)
	if errors.Is(err, unix.ENODEV) {
		t.Skip("SKIPPED: the file system of the temporary folder does not tell what is in memory")
	}
	require.NoError(t, err)
	size := os.Getpagesize()
	pages := make([]byte, (length+size-1)/size)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&stretch[0])), uintptr(length),
		uintptr(unsafe.Pointer(&pages[0])))
	require.NoError(t, unix.Munmap(stretch))
	require.Zero(t, errno)
	there := 0
	for _, p := range pages {
		there += int(p & 1)
	}
	return float64(there) / float64(len(pages))
}

// resident reports whether the page at offset is in the page cache.
func resident(t *testing.T, f *os.File, offset int64) bool {
	t.Helper()
	return residentPart(t, f, offset, 1) > 0
}

// evict removes a file from the page cache.
func evict(t *testing.T, f *os.File) {
	t.Helper()
	require.NoError(t, f.Sync())
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	info, err := f.Stat()
	require.NoError(t, err)
	if residentPart(t, f, 0, int(info.Size())) > 0.01 {
		t.Skip("SKIPPED: the file system of the temporary folder keeps its files in memory")
	}
}

// TestDropBehind: with DropBehind a transfer leaves few of its pages in the page cache: the kernel
// keeps those that a socket may still hold. Other pages of the file stay. The kernel may evict a
// page at any time, so a run in which it did is repeated.
func TestDropBehind(t *testing.T) {
	for _, drop := range []bool{false, true} {
		for _, part := range []int64{29 << 20, 1 << 20} { // parts as with a limit of the rate
			kept := false
			for play := 0; play < 20 && !kept; play++ {
				left, neighbour := transferBetween(t, drop, part)
				if drop {
					require.Less(t, left, 0.5)
				}
				kept = neighbour && (drop || left > 0.9)
			}
			require.True(t, kept, "with DropBehind %v what is to stay has gone each time", drop)
		}
	}
}

// transferBetween sends a cold file except its ends. left is the fraction of the sent pages that is
// then in memory, without the last ones, which the socket may hold. neighbour reports whether the
// first page is in memory, which was read before.
func transferBetween(t *testing.T, drop bool, part int64) (left float64, neighbour bool) {
	t.Helper()
	src, _ := newSource(t, 32<<20)
	evict(t, src.File)
	_, err := src.ReadAt(make([]byte, 4096), 0)
	require.NoError(t, err)
	server, client := pair(t, "tcp")
	require.NoError(t, client.(*net.TCPConn).SetReadBuffer(256<<10)) // the socket uses the pages of unread bytes
	received := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, client)
		received <- n
	}()
	conn := paced(t, server, Pace{})
	body := &Body{Conn: conn, Direct: true, File: src, DropBehind: drop,
		Pieces: []Piece{{Offset: 2 << 20, Length: 29 << 20}}}
	body.w, body.f = conn, bufio.NewWriter(conn)
	for {
		_, err := body.next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		body.allowed = part
		require.NoError(t, body.send())
	}
	require.NoError(t, conn.Close())
	require.EqualValues(t, 29<<20, <-received)
	return residentPart(t, src.File, 2<<20, 20<<20), resident(t, src.File, 0)
}

// TestAdviceByWindows: advice costs a few calls for each window, and none for short ranges.
func TestAdviceByWindows(t *testing.T) {
	var p pages
	p.beginTransfer(100, window)
	p.about(-1, 100, window)
	require.EqualValues(t, 100, p.ahead)
	p.beginTransfer(100, 10*window)
	p.about(-1, 100, 10*window)
	require.EqualValues(t, 100+2*window, p.ahead)
	p.about(-1, 100+window-1, 9*window+1)
	require.EqualValues(t, 100+2*window, p.ahead)
	p.about(-1, 100+window, 9*window)
	require.EqualValues(t, 100+3*window, p.ahead)
	p.about(-1, 100+9*window, window)
	require.EqualValues(t, 100+10*window, p.ahead)
}
