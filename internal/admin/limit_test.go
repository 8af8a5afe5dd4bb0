package admin

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// serveLimited runs the server of a handler, and returns a function that connects to it.
func serveLimited(t *testing.T, h http.HandlerFunc) (connect func() net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewServer(h, log.New(io.Discard, "", 0))
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return func() net.Conn {
		conn, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
		return conn
	}
}

// ask sends a request on a connection and returns the response.
func ask(t *testing.T, conn net.Conn, path string) *http.Response {
	t.Helper()
	_, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	return resp
}

// TestIdleConnectionsMakeRoom: connections without a request, however many, do not keep an operator
// out: the longest idle ones are closed.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	connect := serveLimited(t, func(http.ResponseWriter, *http.Request) {})
	used := connect()
	require.Equal(t, http.StatusOK, ask(t, used, "/").StatusCode)
	var silent []net.Conn
	for range 10 * MaxConnections {
		silent = append(silent, connect())
	}
	require.Equal(t, http.StatusOK, ask(t, connect(), "/").StatusCode)
	for _, conn := range append(silent[:len(silent)-MaxConnections+1], used) {
		_, err := conn.Read(make([]byte, 1))
		require.Error(t, err, "it is closed")
	}
	require.Equal(t, http.StatusOK, ask(t, silent[len(silent)-1], "/").StatusCode, "the newest stay")
}

// TestBusyConnectionsStay: a new connection aborts no running response. While many run, further
// requests get 503, and probes are served.
func TestBusyConnectionsStay(t *testing.T) {
	begun, goOn := make(chan bool), make(chan bool)
	connect := serveLimited(t, func(_ http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/" {
			begun <- true
			<-goOn
		}
	})
	var busy []net.Conn
	for range maxBusy {
		conn := connect()
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
		<-begun
		busy = append(busy, conn)
	}
	for range 2 * MaxConnections {
		require.Equal(t, http.StatusServiceUnavailable, ask(t, connect(), "/").StatusCode)
		require.Equal(t, http.StatusOK, ask(t, connect(), "/healthz").StatusCode)
		require.Equal(t, http.StatusOK, ask(t, connect(), "/readyz").StatusCode)
	}
	close(goOn)
	for _, conn := range busy {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
}

// TestUnsentBodiesMakeRoom: clients that got a response and do not send the body of their request
// do not keep an operator out.
func TestUnsentBodiesMakeRoom(t *testing.T) {
	done := make(chan bool, 2*MaxConnections)
	connect := serveLimited(t, func(http.ResponseWriter, *http.Request) { done <- true })
	for range MaxConnections {
		_, err := io.WriteString(connect(), "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
		require.NoError(t, err)
		<-done
	}
	require.Equal(t, http.StatusOK, ask(t, connect(), "/").StatusCode)
}

// TestUnreadResponsesMakeRoom: clients that do not read responses do not keep an operator out.
func TestUnreadResponsesMakeRoom(t *testing.T) {
	begun := make(chan bool, MaxConnections)
	connect := serveLimited(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/metrics" {
			begun <- true
			_, _ = w.Write(make([]byte, 64<<20)) // an error: the connection was evicted
		}
	})
	for range maxBusy {
		_, err := io.WriteString(connect(), "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
		<-begun
	}
	require.Eventually(t, func() bool { return ask(t, connect(), "/").StatusCode == http.StatusOK }, 10*time.Second,
		time.Millisecond)
}

// TestUnfinishedListsLeaveRoom: clients that do not finish their lists for a prefetch leave room
// for other requests, and have a minute for each line.
func TestUnfinishedListsLeaveRoom(t *testing.T) {
	o := Options{Ready: func() error { return nil }, Locks: func() any { return nil },
		Prefetch: func(_ context.Context, id string) (int64, string, error) { return 1, "fetched", nil }}
	const list = "POST /prefetch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
	t.Run("room", func(t *testing.T) {
		connect := serveLimited(t, New(o).ServeHTTP)
		lists := 0
		for range 2 * MaxConnections {
			conn := connect()
			_, err := io.WriteString(conn, list+"id\n")
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			if resp.StatusCode == http.StatusOK {
				lists++
			}
			for _, path := range []string{"/healthz", "/readyz", "/locks"} {
				require.Equal(t, http.StatusOK, ask(t, connect(), path).StatusCode, path)
			}
		}
		require.Equal(t, maxPrefetches, lists)
	})
	t.Run("time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ln := make(pipes)
			s := NewServer(New(o), log.New(io.Discard, "", 0))
			var serving sync.WaitGroup
			serving.Go(func() { _ = s.Serve(ln) })
			conn, accepted := net.Pipe()
			ln <- accepted
			began := time.Now()
			serving.Go(func() {
				for _, text := range []string{list, "id\n", "id\n", "id\n", "half"} { // each line has its own time
					_, _ = io.WriteString(conn, text) // the response tells
					time.Sleep(lineTime - time.Second)
				}
			})
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, "id fetched 1\nid fetched 1\nid fetched 1\n"+
				"error: cannot read the list: no line has arrived within 1m0s\ndone: 3 files, 1 failed\n", string(text))
			require.Less(t, time.Since(began), 5*lineTime)
			_, err = conn.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF, "the server waits for no rest of the list")
			require.NoError(t, conn.Close())
			require.NoError(t, s.Close())
			serving.Wait()
		})
	})
}

// pipes is a listener for the ends of pipes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }
