package guard

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/httpserver/sendfile"
	"fastdfs-gateway/internal/testing/certtest"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// TestHalfClosed: a client that closes its side within a request gets a 400. A client that closes
// it before a request gets nothing.
func TestHalfClosed(t *testing.T) {
	s := startServer(t, Options{})
	for in, statuses := range map[string][]int{
		"":                                nil,
		"\r\n":                            nil,
		"GET /f HT":                       {400},
		"GET /f HTTP/1.1\r\nHost: h\r\n":  {400},
		get():                             {200},
		get() + get():                     {200, 200},
		get() + "GET":                     {200, 400},
		get("Content-Length: 5") + "hell": {400},
		chunks("5\r\nhello\r\n0\r\n"):     {400},
	} {
		c := s.dial(t)
		c.send(in)
		require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
		for _, status := range statuses {
			require.Equal(t, status, c.receive("GET").StatusCode, "%q", in)
		}
		c.requireEOF()
	}
}

// TestResponseSurvivesUnreadBytes: the response to a rejected upload arrives although the client
// continues to send, and reads only after that. Without a lingering close, a reset would discard
// the response.
func TestResponseSurvivesUnreadBytes(t *testing.T) {
	s := startServer(t, Options{})
	for name, in := range map[string]string{
		"413":          get("Content-Length: 200000"),
		"400":          "GET /f HTTP/1.1\r\nHost : h\r\n\r\n",
		"close":        get("Connection: close"),
		"close framed": get("Connection: close", "Content-Length: 1") + "x",
	} {
		t.Run(name, func(t *testing.T) {
			for range 8 {
				c := s.dial(t)
				c.send(in)
				for range 10 {
					c.send(strings.Repeat("x", 10000))
				}
				time.Sleep(5 * time.Millisecond)
				resp := c.receive("GET")
				if name[0] == 'c' {
					require.Equal(t, 200, resp.StatusCode)
				} else {
					require.Equal(t, name, strconv.Itoa(resp.StatusCode))
				}
				c.requireEOF()
				require.NoError(t, c.Close())
			}
		})
	}
}

// TestResponseSurvivesUnseenBytes: a response also arrives if unread bytes are still in the kernel
// when the connection is closed. If the machine was so late that the lingering may have ended, the
// run is repeated.
func TestResponseSurvivesUnseenBytes(t *testing.T) {
	g := New(Options{})
	eventually.True(t, func() bool {
		server, client := tcpPair(t)
		c := g.Wrap(server)
		_, err := io.WriteString(client, get())
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 4096))
		require.NoError(t, err)
		_, err = client.Write(make([]byte, 10000))
		require.NoError(t, err)
		_, err = io.WriteString(c, "response")
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)), "as behind a long response")
		closed, began := make(chan error, 1), time.Now()
		go func() { closed <- c.Close() }()
		time.Sleep(short / 3)
		_, late := client.Write(make([]byte, 10000))
		got, err := io.ReadAll(client)
		require.NoError(t, client.Close())
		require.NoError(t, <-closed)
		if time.Since(began) > lingerTimeout/2 {
			return false
		}
		require.NoError(t, late)
		require.NoError(t, err)
		require.Equal(t, "response", string(got))
		return true
	})
}

// TestLingerIsBounded: lingering ends also if the client neither closes nor stops to send.
func TestLingerIsBounded(t *testing.T) {
	g := New(Options{})
	for name, tt := range map[string]struct {
		bytes int // of each write; 0 = none
		every time.Duration
	}{"silent client": {}, "flooding client": {bytes: 64 << 10}, "dripping client": {1, lingerTimeout / 5}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := tcpPair(t)
			c := g.Wrap(server)
			_, err := client.Write([]byte("bad\r\n"))
			require.NoError(t, err)
			_, err = c.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for tt.bytes > 0 {
					if _, err := client.Write(make([]byte, tt.bytes)); err != nil {
						return
					}
					time.Sleep(tt.every)
				}
			}()
			start := time.Now()
			require.NoError(t, c.Close())
			require.Less(t, time.Since(start), waitBudget)
			<-done
		})
	}
}

// TestTLSResponseSurvivesUnseenBytes: a response by TLS is not lost if the server has not read all
// bytes of the client.
func TestTLSResponseSurvivesUnseenBytes(t *testing.T) {
	g := New(Options{})
	certificate := certtest.New(t, certtest.Order{Hosts: []string{"example.com"}})
	server, below := tcpPair(t)
	c := g.Wrap(tls.Server(server, &tls.Config{Certificates: []tls.Certificate{certificate.TLS()}}))
	client := tls.Client(below, &tls.Config{RootCAs: certificate.Pool(), ServerName: "example.com"})
	asked := make(chan error, 1)
	go func() {
		_, err := io.WriteString(client, get("Connection: close"))
		asked <- err
	}()
	_, err := c.Read(make([]byte, 4096))
	require.NoError(t, err)
	require.NoError(t, <-asked)
	_, err = client.Write(make([]byte, 10000))
	require.NoError(t, err)
	response := bytes.Repeat([]byte("response"), 10000)
	_, err = c.Write(response)
	require.NoError(t, err)
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	time.Sleep(short / 3) // without lingering, the reset arrives before the client reads
	got, err := io.ReadAll(client)
	require.NoError(t, err)
	require.True(t, bytes.Equal(response, got))
	require.NoError(t, client.Close())
	require.NoError(t, <-closed)
}

// TestOrdinaryCloseDoesNotLinger: a connection without unread bytes is closed at once. The machine
// may be late in some runs, but not in each.
func TestOrdinaryCloseDoesNotLinger(t *testing.T) {
	g := New(Options{})
	quickest := time.Hour
	for play := 0; play < 20 && quickest >= lingerTimeout/2; play++ {
		server, client := tcpPair(t)
		c := g.Wrap(server)
		_, err := client.Write([]byte(get("Connection: close")))
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 4096))
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, c.Close())
		quickest = min(quickest, time.Since(start))
	}
	require.Less(t, quickest, lingerTimeout/2)
}

func TestClose(t *testing.T) {
	g := New(Options{})
	t.Run("wakes Read", func(t *testing.T) {
		for _, in := range []string{"", "GET /f HT", get("Content-Length: 5")} {
			server, client := tcpPair(t)
			c := g.Wrap(server)
			_, err := io.WriteString(client, in)
			require.NoError(t, err)
			read := make(chan error, 1)
			go func() {
				_, err := c.Read(make([]byte, 1))
				read <- err
			}()
			time.Sleep(short / 5)
			require.NoError(t, c.Close())
			require.Equal(t, io.EOF, <-read)
			require.NoError(t, c.Close())
			require.Zero(t, g.Buffers())
			all, err := io.ReadAll(client)
			require.True(t, err == nil || errors.Is(err, net.ErrClosed) || len(all) == 0)
			require.Empty(t, all, "no client is rejected on a connection that was closed from within")
		}
	})
	t.Run("gives back what is pending", func(t *testing.T) {
		server, client := tcpPair(t)
		c := g.Wrap(server)
		_, err := io.WriteString(client, get()+get())
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		require.NoError(t, err)
		require.Equal(t, 1, g.Buffers())
		require.NoError(t, client.Close())
		require.NoError(t, c.Close())
		require.Zero(t, g.Buffers())
		_, err = c.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
	})
	t.Run("empty Read", func(t *testing.T) {
		server, _ := tcpPair(t)
		c := g.Wrap(server)
		n, err := c.Read(nil)
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, c.Close())
	})
}

func tcpPair(t *testing.T) (server, client net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	client, err = net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	socket, err := ln.Accept()
	require.NoError(t, err)
	server, err = sendfile.NewConn(socket, sendfile.Pace{})
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return server, client
}
