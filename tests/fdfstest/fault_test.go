package fdfstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/process/sys"
	"fastdfs-gateway/internal/testing/eventually"
)

const contentSize = 1000

// oneFile is a cluster with one storage and one file of 1000 bytes.
func oneFile(t *testing.T) (*Storage, fdfs.FileID, []byte) {
	t.Helper()
	c := start(t, Options{Groups: []GroupSpec{{Name: "group1"}}})
	content := make([]byte, contentSize)
	for i := range content {
		content[i] = byte(i % 251)
	}
	id, err := c.Put(FileSpec{Group: "group1", Content: content, Ext: "bin"})
	require.NoError(t, err)
	return c.Storage(0), id, content
}

// downloadRequest asks for size bytes from offset from.
func downloadRequest(id fdfs.FileID, from, size int64) []byte {
	body := appendInt(appendInt(nil, from), size)
	return request(CmdDownload, 0, append(body, fileBody(id)...))
}

// fileBody is group and logic filename, as most commands want them.
func fileBody(id fdfs.FileID) []byte {
	return append(appendPadded(nil, id.Group, groupLen), id.Logic...)
}

// send writes a request on a connection of its own.
func send(t *testing.T, addr string, request []byte) *net.TCPConn {
	t.Helper()
	c := dial(t, addr)
	_, err := c.Write(request)
	require.NoError(t, err)
	return c
}

// quiet requires that nothing is to be read from c for a while, and that it stays open.
func quiet(t *testing.T, c *net.TCPConn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := c.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(testTimeout)))
}

// untilQuiet reads what comes until nothing does for a while, and tells how much it was.
func untilQuiet(t *testing.T, c *net.TCPConn) (total int) {
	t.Helper()
	for {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		n, err := c.Read(make([]byte, contentSize))
		total += n
		if err != nil {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			break
		}
	}
	require.NoError(t, c.SetReadDeadline(time.Now().Add(testTimeout)))
	return total
}

// fine requires that the file can be downloaded whole.
func fine(t *testing.T, s *Storage, id fdfs.FileID, content []byte) {
	t.Helper()
	got := exchange(t, s.Addr(), downloadRequest(id, 0, 0))
	require.Equal(t, appendHeader(nil, contentSize, cmdAnswer, 0), got[:headerLen])
	require.Equal(t, content, got[headerLen:])
}

func TestCutAnswers(t *testing.T) {
	s, id, content := oneFile(t)
	whole := append(appendHeader(nil, contentSize, cmdAnswer, 0), content...)
	for _, at := range []int{-11, -10, -3, 0, 1, 999} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("at %d, reset %v", at, reset), func(t *testing.T) {
				fault, end := Faults{BreakAt: new(at)}, error(nil)
				if reset {
					fault, end = Faults{ResetAt: new(at)}, syscall.ECONNRESET
				}
				s.SetFaults(fault)
				got, err := io.ReadAll(send(t, s.Addr(), downloadRequest(id, 0, 0)))
				if reset {
					require.ErrorIs(t, err, end)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, whole[:max(0, headerLen+at)], got)
			})
		}
	}
	t.Run("beyond the body", func(t *testing.T) {
		s.SetFaults(Faults{BreakAt: new(contentSize), ResetAt: new(contentSize)})
		c := send(t, s.Addr(), downloadRequest(id, 0, 0))
		require.Equal(t, whole, readAnswer(t, c))
		quiet(t, c)
	})
	t.Run("the sooner of the two", func(t *testing.T) {
		s.SetFaults(Faults{BreakAt: new(10), ResetAt: new(20)})
		got, err := io.ReadAll(send(t, s.Addr(), downloadRequest(id, 0, 0)))
		require.NoError(t, err)
		require.Len(t, got, headerLen+10)
	})
}

func TestWrongLengths(t *testing.T) {
	s, id, content := oneFile(t)
	tests := map[string]struct {
		fault Faults
		says  uint64
	}{
		"more than is sent": {Faults{WrongLength: 5}, contentSize + 5},
		"less than is sent": {Faults{WrongLength: -5}, contentSize - 5},
		"negative":          {Faults{WrongLength: -contentSize - 1}, 1<<64 - 1},
		"huge":              {Faults{HugeLength: true}, 2 << 30},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s.SetFaults(test.fault)
			c := send(t, s.Addr(), downloadRequest(id, 0, 0))
			got := make([]byte, headerLen+contentSize)
			_, err := io.ReadFull(c, got)
			require.NoError(t, err)
			require.Equal(t, test.says, binary.BigEndian.Uint64(got))
			require.Equal(t, content, got[headerLen:])
			quiet(t, c)
		})
	}
}

func TestWrongAnswers(t *testing.T) {
	s, id, content := oneFile(t)
	t.Run("garbage", func(t *testing.T) {
		s.SetFaults(Faults{Garbage: true})
		c := send(t, s.Addr(), downloadRequest(id, 0, 0))
		got := make([]byte, garbageLen)
		_, err := io.ReadFull(c, got)
		require.NoError(t, err)
		require.NotEqual(t, cmdAnswer, got[8])
		quiet(t, c)
	})
	t.Run("status", func(t *testing.T) {
		s.SetFaults(Faults{Status: 16})
		require.Equal(t, appendHeader(nil, 0, cmdAnswer, 16), exchange(t, s.Addr(), downloadRequest(id, 0, 0)))
	})
	t.Run("some commands", func(t *testing.T) {
		s.SetFaults(Faults{Commands: []byte{CmdFileInfo, CmdMetadata}, Status: 5})
		status, _ := ask(t, s.Addr(), CmdFileInfo, fileBody(id))
		require.EqualValues(t, 5, status)
		fine(t, s, id, content)
	})
	t.Run("some times, then the next rule", func(t *testing.T) {
		s.SetFaults(Faults{Times: 2, Status: 11}, Faults{Times: 1, Status: 28})
		var got []byte
		for range 4 {
			status, _ := ask(t, s.Addr(), CmdActive, nil)
			got = append(got, status)
		}
		require.Equal(t, []byte{11, 11, 28, 0}, got)
	})
	t.Run("none", func(t *testing.T) {
		s.SetFaults(Faults{Status: 5})
		s.SetFaults()
		fine(t, s, id, content)
	})
}

func TestSlowAnswers(t *testing.T) {
	s, id, content := oneFile(t)
	t.Run("delay", func(t *testing.T) {
		s.SetFaults(Faults{Delay: 80 * time.Millisecond})
		began := time.Now()
		fine(t, s, id, content)
		require.GreaterOrEqual(t, time.Since(began), 80*time.Millisecond)
	})
	t.Run("rate", func(t *testing.T) {
		s.SetFaults(Faults{Rate: 10000})
		began := time.Now()
		fine(t, s, id, content)
		require.GreaterOrEqual(t, time.Since(began), 80*time.Millisecond) // 1010 bytes take 101 ms
	})
	t.Run("rate lifted under way", func(t *testing.T) {
		s.SetFaults(Faults{Rate: 5}) // would take 200 s
		c := send(t, s.Addr(), downloadRequest(id, 0, 0))
		_, err := io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err)
		s.SetFaults(Faults{Commands: []byte{CmdFileInfo}, Rate: 1})
		_, err = io.ReadFull(c, make([]byte, headerLen+contentSize-1))
		require.NoError(t, err)
	})
	t.Run("hang", func(t *testing.T) {
		s.SetFaults(Faults{Hang: true, Times: 1})
		c := send(t, s.Addr(), downloadRequest(id, 0, 0))
		eventually.True(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.rules.list[0].left == 0
		}, "it was struck")
		quiet(t, c)
		fine(t, s, id, content) // only one request was struck
		s.SetFaults(Faults{Status: 5})
		require.EqualValues(t, 5, readAnswer(t, c)[9])
	})
}

func TestPartition(t *testing.T) {
	s, id, content := oneFile(t)
	s.SetFaults(Faults{Rate: 100}) // 10 s for all
	running := send(t, s.Addr(), downloadRequest(id, 0, 0))
	_, err := io.ReadFull(running, make([]byte, headerLen))
	require.NoError(t, err)

	s.Partition(true)
	fresh := send(t, s.Addr(), request(CmdActive, 0, nil))
	require.Less(t, untilQuiet(t, running), contentSize) // what was under way
	quiet(t, fresh)
	require.Zero(t, s.Counts().Requests[CmdActive], "a request was read through a partition")

	s.Partition(false)
	s.SetFaults()
	require.EqualValues(t, 0, readAnswer(t, fresh)[9])
	fine(t, s, id, content)
}

func TestKillAndRevive(t *testing.T) {
	s, id, content := oneFile(t)
	addr := s.Addr()
	c := send(t, addr, request(CmdActive, 0, nil))
	require.Len(t, readAnswer(t, c), headerLen)
	for range 2 {
		s.Kill()
		require.Zero(t, s.Counts().Open, "Kill returned too soon")
		s.Kill()
		_, err := net.Dial("tcp", addr)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NoError(t, s.Revive())
		require.NoError(t, s.Revive())
		require.Equal(t, addr, s.Addr())
		fine(t, s, id, content)
	}
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the connection outlived the node")
}

func TestSilence(t *testing.T) {
	s, id, content := oneFile(t)
	open := send(t, s.Addr(), request(CmdActive, 0, nil))
	require.Len(t, readAnswer(t, open), headerLen)
	for range 2 {
		require.NoError(t, s.Silence())
		require.NoError(t, s.Silence())
		_, err := net.DialTimeout("tcp", s.Addr(), 100*time.Millisecond)
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout(), "%v", err)
		require.NoError(t, s.Revive())
		fine(t, s, id, content)
	}
	require.NoError(t, s.Silence())
	_, err := open.Write(request(CmdActive, 0, nil))
	require.NoError(t, err)
	quiet(t, open)
	require.NoError(t, s.Revive())
	require.Len(t, readAnswer(t, open), headerLen)
	s.Kill()
	require.NoError(t, s.Silence())
	s.Kill()
	_, err = net.Dial("tcp", s.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// TestLose: a client of a lost connection is not told, and the kernel at its end gives up as the
// packets are not acknowledged.
func TestLose(t *testing.T) {
	s, id, content := oneFile(t)
	open := send(t, s.Addr(), request(CmdActive, 0, nil))
	require.Len(t, readAnswer(t, open), headerLen)
	require.NoError(t, s.Lose())
	require.NoError(t, sys.SetUserTimeout(open, 100*time.Millisecond))
	_, err := open.Write(request(CmdActive, 0, nil))
	require.NoError(t, err)
	_, err = open.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ETIMEDOUT)
	fine(t, s, id, content)
	require.Equal(t, 1, s.Counts().Requests[CmdActive])
}

// TestSilenceThatIsFull: a client that connects before the queue is filled fills it.
func TestSilenceThatIsFull(t *testing.T) {
	port, err := reserve(netip.MustParseAddrPort("127.0.0.1:0"))
	require.NoError(t, err)
	defer port.close()
	quiet, err := newSilence(port.addr)
	require.NoError(t, err)
	defer quiet.close()
	require.NotNil(t, quiet.filler)
	again, err := fill(port.addr, 50*time.Millisecond)
	require.NoError(t, err)
	require.Nil(t, again)
	(&silence{fd: -1}).close()
}

// TestNoRequestWaits closes a cluster, and the clients, while answers are held up.
func TestNoRequestWaits(t *testing.T) {
	faults := map[string]func(s *Storage){
		"delay":     func(s *Storage) { s.SetFaults(Faults{Delay: time.Hour}) },
		"hang":      func(s *Storage) { s.SetFaults(Faults{Hang: true}) },
		"rate":      func(s *Storage) { s.SetFaults(Faults{Rate: 1}) },
		"partition": func(s *Storage) { s.Partition(true) },
		"silence":   func(s *Storage) { s.Silence() },
	}
	for name, set := range faults {
		t.Run(name, func(t *testing.T) {
			s, id, _ := oneFile(t)
			c := dial(t, s.Addr())
			eventually.True(t, func() bool { return s.Counts().Open == 1 })
			set(s)
			_, err := c.Write(downloadRequest(id, 0, 0))
			require.NoError(t, err)
			quietOrByte(t, c)
			began := time.Now()
			s.cluster.Close()
			require.Less(t, time.Since(began), testTimeout/2)
			require.ErrorIs(t, s.Revive(), ErrClosed)
			require.ErrorIs(t, s.Silence(), ErrClosed)
			s.cluster.Close()
		})
	}
}

// quietOrByte lets the node come to its fault.
func quietOrByte(t *testing.T, c *net.TCPConn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
	c.Read(make([]byte, 1))
}

// TestClientLeaves requires that a node does not keep connections whose clients left while they
// were held up.
func TestClientLeaves(t *testing.T) {
	s, id, _ := oneFile(t)
	for name, set := range map[string]func(){
		"hang":      func() { s.SetFaults(Faults{Hang: true}) },
		"partition": func() { s.Partition(true) },
	} {
		t.Run(name, func(t *testing.T) {
			set()
			c := send(t, s.Addr(), downloadRequest(id, 0, 0))
			eventually.True(t, func() bool { return s.Counts().Open == 1 })
			c.Close()
			eventually.True(t, func() bool { return s.Counts().Open == 0 })
			s.Partition(false)
		})
	}
}

func TestFreeze(t *testing.T) {
	at := 400
	s, id, content := oneFile(t)
	s.SetFaults(Faults{FreezeAt: &at})
	c := send(t, s.Addr(), downloadRequest(id, 0, 0))
	got := make([]byte, headerLen+at)
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, content[:at], got[headerLen:])
	quiet(t, c)
	s.SetFaults()
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	got = make([]byte, contentSize-at)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, content[at:], got)
}
