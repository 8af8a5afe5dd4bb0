package httpserver

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/httpserver/eventloop"
	"fastdfs-gateway/internal/httpserver/guard"
	"fastdfs-gateway/internal/httpserver/sendfile"

	"github.com/stretchr/testify/require"
)

// entrance is a server to which a test admits connections, from addresses of its choice.
type entrance struct {
	t        *testing.T
	s        *Server
	ln       net.Listener
	accepted chan *eventloop.Conn
}

func newEntrance(t *testing.T, o Options) *entrance {
	t.Helper()
	e := &entrance{t: t, s: New(o, &plainHandler{}), accepted: make(chan *eventloop.Conn, 1)}
	var err error
	e.ln, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, err = e.s.loops.Listen(e.ln, e.s.log, func(c *eventloop.Conn) {
		c.Leave()
		e.accepted <- c
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		e.s.loops.CloseListeners()
		require.NoError(t, e.ln.Close())
		e.s.rejecter.wg.Wait()
		require.NoError(t, e.s.loops.Close())
	})
	return e
}

// visit admits a client from an address, and returns nil if it is rejected. A busy client has sent
// a request that is not served yet.
func (e *entrance) visit(from string, busy bool) *conn {
	e.t.Helper()
	client, err := net.Dial("tcp", e.ln.Addr().String())
	require.NoError(e.t, err)
	e.t.Cleanup(func() { _ = client.Close() })
	c := e.s.admit(<-e.accepted, netip.MustParseAddr(from).Unmap(), nil)
	if c == nil {
		return nil
	}
	e.t.Cleanup(func() { _ = c.Close() })
	if busy {
		_, err = io.WriteString(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		require.NoError(e.t, err)
		require.NoError(e.t, c.AwaitInput())
		_, err = c.guarded.Read(make([]byte, 4096))
		require.NoError(e.t, err)
	}
	return c
}

// TestShareOfOneAddress: the limit per address is a default share of all connections, which does
// not apply to this host, or the configured number, which always applies.
func TestShareOfOneAddress(t *testing.T) {
	for name, tt := range map[string]struct {
		limit int
		from  []string // taken in turn
		room  int      // for busy connections from these addresses, of 32
	}{
		"an eighth, once half is in use":        {0, []string{"203.0.113.7"}, 16},
		"an eighth for each of the others":      {0, []string{"198.51.100.9"}, 16},
		"no share for a proxy on this host":     {0, []string{"127.0.0.1"}, 32},
		"nor for one by IPv6":                   {0, []string{"::1"}, 32},
		"a number counts always":                {3, []string{"203.0.113.7"}, 3},
		"a number counts on this host too":      {3, []string{"127.0.0.1"}, 3},
		"one network of IPv6 is one address":    {3, []string{"2001:db8::1", "2001:db8::ffff:1"}, 3},
		"two networks of IPv6 are two":          {3, []string{"2001:db8::1", "2001:db8:0:1::1"}, 6},
		"IPv4 in IPv6 is that IPv4 address":     {3, []string{"203.0.113.7", "::ffff:203.0.113.7"}, 3},
		"no limit where the configuration says": {-1, []string{"203.0.113.7"}, 32},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEntrance(t, Options{MaxConnections: 32, MaxConnectionsPerIP: tt.limit})
			in := 0
			for i := range 40 {
				if e.visit(tt.from[i%len(tt.from)], true) != nil {
					in++
				}
			}
			require.Equal(t, tt.room, in)
		})
	}
}

// TestShareWhileOthersCome: new connections of an address over its share replace its own idle
// connections, not those of others.
func TestShareWhileOthersCome(t *testing.T) {
	e := newEntrance(t, Options{MaxConnections: 32})
	s := e.s
	others := e.visit("198.51.100.9", false) // the longest idle one
	for range 100 {
		require.NotNil(t, e.visit("203.0.113.7", false))
	}
	require.EqualValues(t, 16, s.open.Load(), "half, and then one for one")
	require.NoError(t, others.SetReadDeadline(time.Now().Add(time.Minute)), "still open")
	require.Equal(t, map[string]uint64{"per_ip": 85, "overload": 0}, s.Stats().Evicted)
}

// TestEachTakesOnePlace: at the limit each new connection replaces one idle connection.
func TestEachTakesOnePlace(t *testing.T) {
	e := newEntrance(t, Options{MaxConnections: 32})
	s := e.s
	for range 100 {
		require.NotNil(t, e.visit("127.0.0.1", false))
	}
	require.EqualValues(t, 32, s.open.Load())
	require.EqualValues(t, 68, s.Stats().Evicted["overload"])
}

// TestWalksAreBounded: a walk that found no idle connection is not repeated for a time that follows
// the number of connections, not the duration of the walk. In the bubble a walk takes no time.
func TestWalksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50_000
		socket, err := net.Dial("udp", "127.0.0.1:9") // without input
		require.NoError(t, err)
		defer func() { _ = socket.Close() }()
		sender, err := sendfile.NewConn(socket, sendfile.Pace{})
		require.NoError(t, err)
		s, g, last := newConnSet(), guard.New(guard.Options{}), (*conn)(nil)
		for range n {
			last = &conn{Conn: sender, guarded: g.Wrap(sender)}
			require.True(t, last.guarded.MarkBusy())
			s.addConn(last)
		}
		require.Nil(t, s.evictIdle(), "all are busy")
		last.guarded.MarkIdle()
		require.Nil(t, s.evictIdle(), "no walk yet")
		time.Sleep(n * restPerConn)
		require.Same(t, last, s.evictIdle())
	})
}
