package admin

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"testing"

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
func ask(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
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
	require.Equal(t, http.StatusOK, ask(t, used).StatusCode)
	var silent []net.Conn
	for range 10 * MaxConnections {
		silent = append(silent, connect())
	}
	require.Equal(t, http.StatusOK, ask(t, connect()).StatusCode)
	for _, conn := range append(silent[:len(silent)-MaxConnections+1], used) {
		_, err := conn.Read(make([]byte, 1))
		require.Error(t, err, "it is closed")
	}
	require.Equal(t, http.StatusOK, ask(t, silent[len(silent)-1]).StatusCode, "the newest stay")
}

// TestBusyConnectionsStay: a new connection aborts no running response: without an idle connection,
// the new one is closed.
func TestBusyConnectionsStay(t *testing.T) {
	begun, goOn := make(chan bool), make(chan bool)
	connect := serveLimited(t, func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-goOn
	})
	var busy []net.Conn
	for range MaxConnections {
		conn := connect()
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		<-begun
		busy = append(busy, conn)
	}
	_, err := connect().Read(make([]byte, 1))
	require.Error(t, err)
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
		_, err := io.WriteString(connect(), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
		require.NoError(t, err)
		<-done
	}
	require.Equal(t, http.StatusOK, ask(t, connect()).StatusCode)
}
