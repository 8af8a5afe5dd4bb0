package fdfs

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// patient is the maximum wait of a test for an expected event: only a bug makes a test wait so
// long. It is less than patientTimeout, the network timeout of pools whose requests must not reach
// it.
const (
	patient        = 30 * time.Second
	patientTimeout = time.Minute
)

// fake is a server. A function handles each of its connections, and gets the number of the
// connection, from 1.
type fake struct {
	net.Listener
	accepted, open  atomic.Int32 // connections
	requests, quits atomic.Int32
	wg              sync.WaitGroup
	mu              sync.Mutex // guards conns
	conns           []net.Conn
}

func newFake(t *testing.T, handle func(f *fake, c net.Conn, n int)) *fake {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fake{Listener: l}
	f.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := f.accepted.Add(1)
			f.open.Add(1)
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			f.wg.Go(func() {
				defer f.open.Add(-1)
				defer c.Close()
				handle(f, c, int(n))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		f.mu.Lock()
		for _, c := range f.conns {
			c.Close()
		}
		f.mu.Unlock()
		f.wg.Wait()
	})
	return f
}

// conn returns the n-th accepted connection, from 0.
func (f *fake) conn(n int) net.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conns[n]
}

// acceptedSoFar returns the number of connections that were made before the call. It makes one more
// connection: when that is accepted, all earlier ones are counted.
func (f *fake) acceptedSoFar(t *testing.T) int {
	t.Helper()
	c, err := net.Dial("tcp", f.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	mine := c.LocalAddr().String()
	at := -1
	eventually.True(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		at = slices.IndexFunc(f.conns, func(c net.Conn) bool { return c.RemoteAddr().String() == mine })
		return at >= 0
	})
	return at
}

// next reads a request and returns its header and its body.
func (f *fake) next(c net.Conn) (Header, []byte, error) {
	var head [HeaderSize]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return Header{}, nil, err
	}
	h := Header{Command: Command(head[8]), Status: head[9]}
	if h.Command == CmdQuit {
		f.quits.Add(1)
		return h, nil, io.EOF
	}
	body := make([]byte, head[7])
	_, err := io.ReadFull(c, body)
	f.requests.Add(1)
	return h, body, err
}

func reply(status byte, body string) []byte {
	return append(Header{Length: int64(len(body)), Command: CmdReply, Status: status}.AppendTo(nil), body...)
}

// echo replies to every request with its body.
func echo(f *fake, c net.Conn, _ int) {
	for {
		_, body, err := f.next(c)
		if err != nil {
			return
		}
		c.Write(reply(0, string(body)))
	}
}

// newPool returns a pool. The default timeouts are so long that only a bug reaches them.
func newPool(t *testing.T, f *fake, o PoolOptions) *Pool {
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = patientTimeout
	}
	if o.NetworkTimeout == 0 {
		o.NetworkTimeout = patientTimeout
	}
	p := NewPool(f.Addr().String(), o)
	t.Cleanup(func() {
		p.Close()
		require.Zero(t, len(p.limit.used), "a connection still counts")
	})
	return p
}

func call(p *Pool, text string) (string, error) {
	b, err := p.Call(context.Background(), CmdListStorages, 0, []byte(text), 1000)
	return string(b), err
}

// fullListener returns the address of a listener that accepts no connection: its backlog is full.
func fullListener(t *testing.T) string {
	fd, addr := bound(t)
	require.NoError(t, syscall.Listen(fd, 0))
	for range 4 {
		c, err := net.DialTimeout("tcp", addr, 300*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the backlog does not fill")
	return ""
}

// bound returns a socket that has an address and does not listen.
func bound(t *testing.T) (fd int, addr string) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	return fd, (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}).String()
}
