package sendfile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitBudget bounds the wait for an event that normally comes at once: the machine may be under
// load.
const waitBudget = 30 * time.Second

// source is a file on disk.
type source struct{ *os.File }

func (s source) At(offset, limit int64) (content.Chunk, error) {
	return content.Chunk{File: s.File, Offset: offset, Length: limit}, nil
}

// memory is a file in memory.
type memory []byte

func (m memory) At(offset, limit int64) (content.Chunk, error) {
	return content.InMemory(m[offset : offset+limit]), nil
}

// newSource makes a file of random bytes.
func newSource(t *testing.T, size int) (source, []byte) {
	t.Helper()
	content := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(content)
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return source{f}, content
}

// pair makes two ends of a connection; network is tcp or unix.
func pair(t *testing.T, network string) (server, client net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	ln, err := net.Listen(network, address)
	require.NoError(t, err)
	defer ln.Close()
	client, err = net.Dial(network, ln.Addr().String())
	require.NoError(t, err)
	server, err = ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = server.Close(), client.Close() })
	return server, client
}

func paced(t *testing.T, c net.Conn, pace Pace) *Conn {
	t.Helper()
	conn, err := NewConn(c, pace)
	require.NoError(t, err)
	return conn
}

// exchange sends head and body as fasthttp does, and returns the bytes that the client has
// received.
func exchange(t *testing.T, conn net.Conn, client net.Conn, head string, body *Body) []byte {
	t.Helper()
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(client)
		got <- b
	}()
	w := bufio.NewWriterSize(conn, 4096)
	_, _ = w.WriteString(head)
	_, err := body.WriteTo(w)
	if err == nil {
		err = w.Flush()
	}
	require.NoError(t, err)
	body.Close()
	require.NoError(t, conn.Close())
	return <-got
}

func TestBodyOverEveryTransport(t *testing.T) {
	const mb = 1 << 20
	src, bytesOf := newSource(t, 3*mb+17)
	inMemory := memory(bytesOf)
	pieces := map[string]struct {
		pieces []Piece
		want   []byte
	}{
		"whole":         {[]Piece{{Length: int64(len(bytesOf))}}, bytesOf},
		"trunk slot":    {[]Piece{{Offset: 1000, Length: 4096}}, bytesOf[1000:5096]},
		"one byte":      {[]Piece{{Offset: 77, Length: 1}}, bytesOf[77:78]},
		"large stretch": {[]Piece{{Offset: 5, Length: 2 * mb}}, bytesOf[5 : 5+2*mb]},
		"head and piece": {[]Piece{{Head: []byte("FLV"), Offset: 9, Length: 100}},
			append([]byte("FLV"), bytesOf[9:109]...)},
		"parts": {[]Piece{{Head: []byte("--a\r\n"), Length: 10}, {Head: []byte("\r\n--a\r\n"), Offset: mb, Length: mb},
			{Head: []byte("\r\n--a--")}},
			bytes.Join([][]byte{[]byte("--a\r\n"), bytesOf[:10], []byte("\r\n--a\r\n"), bytesOf[mb : 2*mb],
				[]byte("\r\n--a--")}, nil)},
	}
	transports := map[string]func(t *testing.T) (conn *Conn, direct bool, client net.Conn){
		"tcp": func(t *testing.T) (*Conn, bool, net.Conn) {
			server, client := pair(t, "tcp")
			return paced(t, server, Pace{MinRate: 1024, Window: time.Second}), true, client
		},
		"unix": func(t *testing.T) (*Conn, bool, net.Conn) {
			server, client := pair(t, "unix")
			return paced(t, server, Pace{MinRate: 1024, Window: time.Second}), true, client
		},
		"not direct, as TLS is": func(t *testing.T) (*Conn, bool, net.Conn) {
			server, client := pair(t, "tcp")
			return paced(t, server, Pace{}), false, client
		},
	}
	for transport, connect := range transports {
		for name, tt := range pieces {
			t.Run(transport+"/"+name, func(t *testing.T) {
				var inFile int64 // bytes that sendfile sends
				for _, p := range tt.pieces {
					if transport == "tcp" {
						inFile += p.Length
					}
				}
				const head = "HTTP/1.1 200 OK\r\n\r\n"
				for file, bySendfile := range map[content.File]int64{src: inFile, &inMemory: 0} {
					conn, direct, client := connect(t)
					var result Result
					body := &Body{Conn: conn, Direct: direct, File: file, Pieces: tt.pieces,
						Done: func(r Result) { result = r }}
					require.EqualValues(t, len(tt.want), body.Length())
					got := exchange(t, conn, client, head, body)
					require.Equal(t, sha256.Sum256(append([]byte(head), tt.want...)), sha256.Sum256(got), "%d bytes",
						len(got))
					require.EqualValues(t, len(tt.want), result.Sent)
					require.Equal(t, bySendfile, result.BySendfile)
					require.False(t, result.FirstByte.IsZero())
				}
			})
		}
	}
}

// TestClientGone: a disconnect is an error of the response, and the sent bytes are counted.
func TestClientGone(t *testing.T) {
	src, bytes := newSource(t, 32<<20)
	for name, file := range map[string]content.File{"file": src, "memory": memory(bytes)} {
		server, client := pair(t, "tcp")
		conn := paced(t, server, Pace{MinRate: 1, Window: time.Minute})
		go func() {
			_, _ = io.CopyN(io.Discard, client, 1000)
			_ = client.Close()
		}()
		var result Result
		body := &Body{Conn: conn, Direct: true, File: file, Pieces: []Piece{{Length: 32 << 20}},
			Done: func(r Result) { result = r }}
		w := bufio.NewWriter(conn)
		_, _ = w.WriteString("head")
		_, err := body.WriteTo(w)
		require.Error(t, err, name)
		body.Close()
		require.Equal(t, err, result.Err, name)
		require.Positive(t, result.Sent)
		require.Less(t, result.Sent, int64(32<<20))
		require.Empty(t, conn.behind)
	}
}

// TestHeadAndFileInOnePacket: the head and a small file are sent in one packet. The kernel waits
// 200 ms for the bytes that follow a head, so a run that took longer than half of that is repeated.
func TestHeadAndFileInOnePacket(t *testing.T) {
	src, _ := newSource(t, 1000)
	for plays, late := 0, true; late && plays < 100; plays++ {
		server, client := pair(t, "tcp")
		conn := paced(t, server, Pace{})
		w := bufio.NewWriter(conn)
		_, _ = w.WriteString("HTTP/1.1 200 OK\r\n\r\n")
		began := time.Now()
		_, err := (&Body{Conn: conn, Direct: true, File: src, Pieces: []Piece{{Length: 1000}}}).WriteTo(w)
		require.NoError(t, errors.Join(err, w.Flush()))
		late = time.Since(began) > 100*time.Millisecond
		_, err = io.CopyN(io.Discard, client, 1019)
		require.NoError(t, err)
		if packets := dataPackets(t, server); !late {
			require.EqualValues(t, 1, packets)
		}
	}
}

// dataPackets returns the number of sent packets with data.
func dataPackets(t *testing.T, c net.Conn) (n uint32) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		require.NoError(t, err)
		n = info.Data_segs_out
	}))
	return n
}

// TestStuckCopiesHoldNoBuffers: copied responses to clients that do not read hold no buffers.
func TestStuckCopiesHoldNoBuffers(t *testing.T) {
	src, _ := newSource(t, 16<<20)
	ended := make(chan error)
	var clients []net.Conn
	for _, network := range []string{"tcp", "tcp", "tcp", "unix"} {
		server, client := pair(t, network)
		clients = append(clients, client)
		conn := paced(t, server, Pace{MinRate: 1, Window: time.Hour})
		go func() {
			_, err := (&Body{Conn: conn, File: src,
				Pieces: []Piece{{Length: 16 << 20}}}).WriteTo(bufio.NewWriter(conn))
			ended <- err
		}()
		defer func() {
			_ = client.Close()
			require.Error(t, <-ended)
		}()
	}
	arrived := func() (total int, all bool) {
		all = true
		for _, c := range clients {
			raw, err := c.(syscall.Conn).SyscallConn()
			require.NoError(t, err)
			n := 0
			require.NoError(t, raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }))
			require.NoError(t, err)
			total, all = total+n, all && n > 0
		}
		return total, all
	}
	eventually.True(t, func() bool { // the sockets' buffers are full
		before, all := arrived()
		time.Sleep(100 * time.Millisecond)
		after, _ := arrived()
		return all && before == after && held.Load() == 0
	})
}

// fileFunc is a file whose At is a function.
type fileFunc func(offset, limit int64) (content.Chunk, error)

func (f fileFunc) At(offset, limit int64) (content.Chunk, error) { return f(offset, limit) }

// panicking is a stream whose Read panics.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("test") }

func TestStreams(t *testing.T) {
	server, client := pair(t, "tcp")
	conn := paced(t, server, Pace{})
	go func() { _, _ = io.Copy(io.Discard, client) }()
	send := func(file fileFunc) Result {
		var result Result
		body := &Body{Conn: conn, Direct: true, File: file,
			Pieces: []Piece{{Head: []byte("ab"), Offset: 5, Length: 3}, {Offset: 9, Length: 1}},
			Done:   func(r Result) { result = r }}
		_, err := body.WriteTo(bufio.NewWriter(conn))
		body.Close()
		require.Equal(t, err, result.Err)
		body.Close() // does nothing
		return result
	}
	part := func(text string) fileFunc {
		return func(offset, limit int64) (content.Chunk, error) {
			r := iotest.OneByteReader(strings.NewReader(text[offset:min(offset+limit, int64(len(text)))]))
			return content.Chunk{Stream: r, Length: limit}, nil
		}
	}
	whole := send(part("0123456789"))
	require.NoError(t, whole.Err)
	require.EqualValues(t, 6, whole.Sent)
	short := send(part("0123456"))
	require.ErrorIs(t, short.Err, ErrSource)
	require.ErrorIs(t, short.Err, io.ErrUnexpectedEOF)
	require.EqualValues(t, 4, short.Sent)
	failed := send(func(int64, int64) (content.Chunk, error) { return content.Chunk{}, os.ErrPermission })
	require.ErrorIs(t, failed.Err, ErrSource)
	require.ErrorIs(t, failed.Err, os.ErrPermission)
	ended := send(func(int64, int64) (content.Chunk, error) { return content.Chunk{}, io.EOF })
	require.ErrorIs(t, ended.Err, ErrSource, "only the end of the pieces is the end")
	bug := send(func(int64, int64) (content.Chunk, error) { return content.Chunk{Stream: panicking{}, Length: 1}, nil })
	require.ErrorIs(t, bug.Err, ErrPanic)
}
