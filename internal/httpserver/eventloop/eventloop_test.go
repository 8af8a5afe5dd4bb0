package eventloop

import (
	"bytes"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a group with a listener on loopback, which is closed at the end of the test.
type server struct {
	t        *testing.T
	g        *Group
	ln       net.Listener
	open     sync.Map // set of *Conn
	conns    atomic.Int64
	log      *slog.Logger
	accepted func() // nil = nothing
}

// start starts a server that calls serve for each connection from its first byte on.
func start(t *testing.T, serve func(*Conn)) *server {
	t.Helper()
	s := &server{t: t, g: New(serve), log: slog.Default()}
	s.g.sweepEvery = 10 * time.Millisecond
	s.listen(serve)
	return s
}

// startUnwatched starts a server whose leaders are replaced only if they report that they wait.
func startUnwatched(t *testing.T, serve func(*Conn)) *server {
	t.Helper()
	s := &server{t: t, g: New(serve), log: slog.Default()}
	s.g.watch.every = time.Hour
	s.listen(serve)
	return s
}

func (s *server) listen(serve func(*Conn)) {
	t := s.t
	t.Helper()
	var err error
	s.ln, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, err = s.g.Listen(s.ln, s.log, func(c *Conn) {
		s.conns.Add(1)
		s.open.Store(c, nil)
		if s.accepted != nil {
			s.accepted()
		}
		if !c.Park() {
			serve(c)
		}
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		s.g.CloseListeners()
		require.NoError(t, s.ln.Close())
		s.open.Range(func(c, _ any) bool { return c.(*Conn).Close() == nil })
		require.NoError(t, s.g.Close())
	})
}

func (s *server) dial() *net.TCPConn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.ln.Addr().String())
	require.NoError(s.t, err)
	require.NoError(s.t, c.SetDeadline(time.Now().Add(time.Minute)))
	s.t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// send connects a client and sends a text.
func (s *server) send(text string) *net.TCPConn {
	s.t.Helper()
	c := s.dial()
	_, err := io.WriteString(c, text)
	require.NoError(s.t, err)
	return c
}

// echo sends back the bytes that have arrived, and parks.
func echo(c *Conn) {
	p := make([]byte, 100)
	for {
		switch n, err := c.ReadNow(p); {
		case err == unix.EAGAIN:
			if c.Park() {
				return
			}
		case err != nil:
			_ = c.Close()
			return
		default:
			if _, err := c.Write(p[:n]); err != nil {
				_ = c.Close()
				return
			}
		}
	}
}

// exchange sends a text, and requires that it comes back.
func exchange(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
	got := make([]byte, len(text))
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

// TestLarge: a writer whose client reads slowly waits. The loops serve other connections meanwhile.
func TestLarge(t *testing.T) {
	content := make([]byte, 20<<20)
	_, _ = rand.Read(content)
	var first atomic.Bool
	s := startUnwatched(t, func(c *Conn) {
		if !first.CompareAndSwap(false, true) {
			echo(c)
			return
		}
		_, _ = c.Read(make([]byte, 1))
		n, err := c.Write(content)
		if err != nil || n != len(content) {
			t.Errorf("%d bytes, %v", n, err)
		}
		_ = c.Close()
	})
	slow := s.send("x")
	got := make([]byte, 1000)
	_, err := io.ReadFull(slow, got)
	require.NoError(t, err)
	for range 8 {
		exchange(t, s.dial(), "others")
	}
	rest, err := io.ReadAll(slow)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, append(got, rest...)))
}

// TestHeldUp: owners that do not return, and do not report that they wait, delay no other
// connection.
func TestHeldUp(t *testing.T) {
	release := make(chan struct{})
	s := start(t, func(c *Conn) {
		p := make([]byte, 1)
		switch _, err := c.ReadNow(p); {
		case err == unix.EAGAIN && c.Park():
			return
		case err == nil && p[0] == '!':
			<-release
		case err == nil:
			_, _ = c.Write(p) // the client sees a failure
		}
		echo(c)
	})
	t.Cleanup(func() { close(release) })
	for i := range 20 {
		exchange(t, s.dial(), "x") // so that each loop in turn is held up
		if i == 10 {
			eventually.True(t, s.g.watch.resting.Load, "the watchdog does not rest")
		}
		s.send("!")
		exchange(t, s.dial(), "xab")
	}
}

// TestPanic: a panic of an owner closes its connection and no other.
func TestPanic(t *testing.T) {
	s := start(t, func(c *Conn) {
		p := make([]byte, 1)
		switch _, err := c.ReadNow(p); {
		case err == unix.EAGAIN && c.Park():
			return
		case err == nil && p[0] == '!':
			panic("test")
		case err == nil:
			_, _ = c.Write(p) // the client sees a failure
		}
		echo(c)
	})
	c := s.send("!")
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	other := s.dial()
	exchange(t, other, "x")
	exchange(t, other, "ab")
}

// TestDeadlines: a parked connection is served at its deadline. A Read ends at its deadline, also
// at one that is set during the Read.
func TestDeadlines(t *testing.T) {
	served := make(chan error, 1)
	s := start(t, func(c *Conn) {
		p := make([]byte, 10)
		switch n, err := c.ReadNow(p); {
		case err == unix.EAGAIN && c.Park():
			return
		case err == nil && n > 0 && p[0] == 'p': // park
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if c.Park() {
				return
			}
			served <- io.ErrShortBuffer
		case err == nil && n > 0 && p[0] == 'w': // wait
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			_, err = c.Read(p)
			served <- err
		case err == nil && n > 0 && p[0] == 'm': // move while it waits
			_ = c.SetReadDeadline(time.Now().Add(time.Hour))
			time.AfterFunc(20*time.Millisecond, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
			_, err = c.Read(p)
			served <- err
		default:
			served <- err
		}
		_ = c.Close()
	})
	for _, how := range []string{"p", "w", "m"} {
		s.send(how)
		require.ErrorIs(t, <-served, os.ErrDeadlineExceeded, how)
	}
}

// TestBytesBeforeDeadline: bytes that have arrived are read although the deadline has passed
// meanwhile, as on a machine that is late.
func TestBytesBeforeDeadline(t *testing.T) {
	read, ended := make(chan string, 1), make(chan error, 1)
	s := start(t, func(c *Conn) {
		_ = c.AwaitInput()
		_ = c.SetReadDeadline(time.Unix(1, 0))
		p := make([]byte, 10)
		n, _ := c.ReadNow(p)
		read <- string(p[:n])
		_, err := c.ReadNow(p)
		ended <- err
		_ = c.Close()
	})
	s.send("late")
	require.Equal(t, "late", <-read)
	require.ErrorIs(t, <-ended, os.ErrDeadlineExceeded)
}

// TestWriteDeadline: a Write whose client reads nothing ends at its deadline.
func TestWriteDeadline(t *testing.T) {
	served := make(chan error, 1)
	s := start(t, func(c *Conn) {
		_ = c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := c.Write(make([]byte, 64<<20))
		served <- err
		_ = c.Close()
	})
	c := s.send("x")
	require.ErrorIs(t, <-served, os.ErrDeadlineExceeded)
	require.NoError(t, c.Close())
}

// TestCloseEndsWaits: Close in another goroutine ends a waiting Read and Write. The closed
// connection rejects further calls.
func TestCloseEndsWaits(t *testing.T) {
	served := make(chan error, 2)
	got := make(chan *Conn, 1)
	s := start(t, func(c *Conn) {
		go func() {
			_, err := c.Write(make([]byte, 64<<20))
			served <- err
		}()
		p := make([]byte, 1)
		_, _ = c.Read(p)
		got <- c
		_, err := c.Read(p)
		served <- err
	})
	s.send("x")
	c := <-got
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-served, net.ErrClosed)
	require.ErrorIs(t, <-served, net.ErrClosed)
	require.NoError(t, c.Close())
	require.False(t, c.Park())
	_, err := c.ReadNow(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorIs(t, c.SetReadDeadline(time.Now()), net.ErrClosed)
}

// TestCloseAndEvents: if connections are closed by the owner, by another goroutine and by the
// client while bytes arrive, no descriptor leaks, and none is closed twice.
func TestCloseAndEvents(t *testing.T) {
	s := start(t, echo)
	before := descriptors(t)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			c, err := net.Dial("tcp", s.ln.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, "hello")
			if i%3 == 0 {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
			if i%3 == 1 {
				s.open.Range(func(open, _ any) bool {
					served := open.(*Conn)
					if served.RemoteAddr().String() == c.LocalAddr().String() {
						_ = served.Close()
					}
					return true
				})
			}
			if i%3 == 2 {
				_, _ = io.ReadFull(c, make([]byte, 5))
			}
		})
	}
	wg.Wait()
	s.open.Range(func(c, _ any) bool { return c.(*Conn).Close() == nil })
	eventually.True(t, func() bool { return descriptors(t) <= before })
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// TestAddresses: connections by IPv4, IPv6 and unix sockets have the right addresses.
func TestAddresses(t *testing.T) {
	for _, tt := range []struct{ network, listen string }{
		{"tcp", "127.0.0.1:0"}, {"tcp", "[::1]:0"}, {"tcp", "[::]:0"}, {"tcp4", "0.0.0.0:0"},
		{"unix", t.TempDir() + "/s"},
	} {
		g := New(func(*Conn) {})
		ln, err := net.Listen(tt.network, tt.listen)
		require.NoError(t, err)
		got := make(chan *Conn, 1)
		_, err = g.Listen(ln, slog.Default(), func(c *Conn) { got <- c })
		require.NoError(t, err)
		client, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
		require.NoError(t, err)
		c := <-got
		if tt.network == "unix" {
			require.Equal(t, ln.Addr(), c.LocalAddr())
			require.IsType(t, &net.UnixAddr{}, c.RemoteAddr())
		} else {
			require.Equal(t, client.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(),
				c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
			require.Equal(t, client.LocalAddr().(*net.TCPAddr).Port, c.RemoteAddr().(*net.TCPAddr).Port)
			require.Equal(t, client.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(),
				c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
		}
		require.NoError(t, c.Close())
		require.NoError(t, client.Close())
		g.CloseListeners()
		require.NoError(t, ln.Close())
		require.NoError(t, g.Close())
	}
}

// TestListenerOfAnotherProcess: a listener that is closed here accepts no connection, though
// another process has its socket open.
func TestListenerOfAnotherProcess(t *testing.T) {
	s := start(t, echo)
	exchange(t, s.dial(), "x")
	other, err := s.ln.(*net.TCPListener).File() // like the descriptor of another process
	require.NoError(t, err)
	defer other.Close()
	s.g.CloseListeners()
	c := s.dial() // the kernel accepts it for the other process
	_, err = io.WriteString(c, "x")
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.EqualValues(t, 1, s.conns.Load())
	first := s.g.loops[0]
	first.mu.Lock()
	defer first.mu.Unlock()
	require.Less(t, first.turns, uint64(10), "the socket has no more events")
	_, err = s.g.Listen(s.ln, slog.Default(), nil)
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestLackOfDescriptors: without free descriptors, accepting is repeated after growing pauses.
func TestLackOfDescriptors(t *testing.T) {
	s := &server{t: t, g: New(echo)}
	var warnings lines
	s.log = slog.New(slog.NewTextHandler(&warnings, nil))
	s.listen(echo)
	before := s.dial()
	exchange(t, before, "x")
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	limit := limitDescriptors(t, 3)
	address := s.ln.Addr().(*net.TCPAddr)
	require.NoError(t, unix.Connect(client, &unix.SockaddrInet4{Port: address.Port, Addr: [4]byte{127, 0, 0, 1}}))
	eventually.True(t, func() bool { return warnings.n.Load() >= 2 })
	exchange(t, before, "y")
	time.Sleep(20 * time.Millisecond) // time for many more warnings
	limit.restore()
	file := os.NewFile(uintptr(client), "client")
	defer file.Close()
	_, err = file.WriteString("z")
	require.NoError(t, err)
	got := make([]byte, 1)
	_, err = file.Read(got)
	require.NoError(t, err)
	require.Equal(t, "z", string(got))
	require.Less(t, warnings.n.Load(), int64(20))
}

// lines counts the lines that a log writes.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.n.Add(1)
	return len(p), nil
}

// descriptorLimit holds the limit of open files before limitDescriptors.
type descriptorLimit struct{ unix.Rlimit }

func limitDescriptors(t *testing.T, n uint64) *descriptorLimit {
	t.Helper()
	var limit descriptorLimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit.Rlimit))
	t.Cleanup(limit.restore)
	low := limit.Rlimit
	low.Cur = n
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	return &limit
}

func (l *descriptorLimit) restore() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &l.Rlimit) }

// TestPanicOfAccept: a panic on a new connection closes that connection, and others are accepted.
func TestPanicOfAccept(t *testing.T) {
	s := &server{t: t, g: New(echo), log: slog.Default()}
	s.accepted = func() {
		if s.conns.Load() == 1 {
			panic("test")
		}
	}
	s.listen(echo)
	_, err := s.dial().Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	exchange(t, s.dial(), "x")
}
