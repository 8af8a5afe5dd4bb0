package origin

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// TestHTTPConnectionsAreLost: if the connections to a web server are lost without a notice, as
// after a host has moved, a request uses a new connection after the connect timeout. It does not
// try other idle connections.
func TestHTTPConnectionsAreLost(t *testing.T) {
	t.Parallel()
	const conns = 32
	patient := 20 * time.Second // less than the attempts on all idle connections take
	content := []byte(strings.Repeat("x", 1000))
	var together sync.WaitGroup // the first requests, each of which gets a connection
	together.Add(conns)
	var mu sync.Mutex // guards open and requests
	var open []*net.TCPConn
	requests := 0
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			requests++
			first := requests <= conns
			mu.Unlock()
			if first {
				together.Done()
				together.Wait()
			}
			http.ServeContent(w, r, "x.bin", longAgo, strings.NewReader(string(content)))
		}),
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateNew {
				mu.Lock()
				open = append(open, c.(*net.TCPConn))
				mu.Unlock()
			}
		},
	}
	ln := listen(t, "127.0.0.31")[0]
	go func() { _ = server.Serve(ln) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })
	addr := ln.Addr().(*net.TCPAddr)
	asked := []client.Server{{Host: addr.IP.String(), Port: 23000}}
	c := NewHTTPClient(HTTPOptions{Port: addr.Port, ConnectTimeout: time.Second, NetworkTimeout: 5 * time.Minute})
	t.Cleanup(c.Close)
	r := wanted(t, content)
	var all sync.WaitGroup
	for range conns {
		all.Go(func() {
			if _, err := c.Stat(t.Context(), r, asked); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	mu.Lock()
	for _, conn := range open {
		require.NoError(t, fdfstest.DropReceived(conn))
	}
	mu.Unlock()

	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	_, err := c.Stat(ctx, r, asked)
	require.NoError(t, err)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, open, conns+1)
}
