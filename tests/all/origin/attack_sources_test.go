package origin

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// idsAt returns n ids of files that do not exist, with one source.
func idsAt(t *testing.T, address string, n int) (ids []string) {
	t.Helper()
	source := fdfs.Source(netip.MustParseAddr(address).As4())
	for i := range n {
		ids = append(ids, e2e.IDOf(t, source, "group1", e2e.LongAgo.Add(time.Duration(i)*time.Second)))
	}
	return ids
}

// abandon requests files from the gateways on several connections at a time, and disconnects at
// once.
func abandon(t *testing.T, ids []string, gateways ...string) {
	t.Helper()
	var clients sync.WaitGroup
	work := make(chan int)
	for range 16 {
		clients.Go(func() {
			for i := range work {
				conn, err := net.DialTimeout("tcp", gateways[i%len(gateways)], e2e.Timeout)
				if err != nil {
					t.Error(err)
					continue
				}
				_, _ = fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: gw.test\r\n\r\n", ids[i]) // it may be closed by now
				_ = conn.Close()
			}
		})
	}
	for i := range ids {
		work <- i
	}
	close(work)
	clients.Wait()
}

// bystander is a client with an open connection to a gateway, so that the test does not measure the
// kernel's queue of connections.
type bystander struct {
	http.Client
	p *e2e.Process
}

func newBystander(p *e2e.Process) *bystander {
	b := &bystander{p: p, Client: http.Client{Transport: &http.Transport{}, Timeout: e2e.Timeout}}
	p.T.Cleanup(b.CloseIdleConnections)
	return b
}

// served requests a file, requires status 200, and returns the duration.
func (b *bystander) served(id fdfs.FileID) time.Duration {
	b.p.T.Helper()
	began := time.Now()
	resp, err := b.Get("http://" + b.p.Addrs[0] + e2e.Path(id))
	require.NoError(b.p.T, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(b.p.T, err)
	require.NoError(b.p.T, resp.Body.Close())
	require.Equal(b.p.T, 200, resp.StatusCode)
	return time.Since(began)
}

// requireServed bounds the durations of requests for files of a healthy storage during an attack:
// the attack keeps the machine busy, but no request may wait for a timeout.
func requireServed(t *testing.T, times ...time.Duration) {
	t.Helper()
	t.Logf("other files took %v", times)
	require.Less(t, slices.Max(times), e2e.Prompt)
}

// attackedEdge returns the lines of a gateway whose operator has allowed the attacker's addresses
// as sources.
func attackedEdge(port int) []string {
	return []string{"storage_server_port = " + strconv.Itoa(port), "[gateway]", "allow_sources = 127.77.0.0/16",
		"try_replicas = false"}
}

// TestAttackSilentAddresses: a file of a healthy storage is served as usual while ids name more
// silent addresses than the gateway keeps servers, and each client disconnects at once.
func TestAttackSilentAddresses(t *testing.T) {
	t.Parallel()
	var hosts, ids []string
	for i := range 1100 {
		hosts = append(hosts, fmt.Sprintf("127.77.%d.%d", i/250, 1+i%250))
		ids = append(ids, idsAt(t, hosts[i], 1)...)
	}
	port := e2e.Silence(t, 0, hosts...)
	c := e2e.NewCluster(t, fdfstest.Options{})
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(c, append(attackedEdge(port), "read_timeout = 5m")...)))
	healthy := func(i int) fdfs.FileID { // the gateway has to request each from another storage
		return e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(i), Content: []byte("x"), Ext: "bin",
			Created: e2e.LongAgo.Add(time.Duration(i) * time.Second)})
	}
	other := newBystander(p)
	other.served(healthy(0))
	stays := p.Dial() // some clients stay
	for _, id := range ids[:100] {
		conn := p.Dial()
		_, err := fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: gw.test\r\n\r\n", id)
		require.NoError(t, err)
	}
	const addresses = 64 // that may be used at a time
	eventually.True(t, func() bool {
		return p.Metric(`fdfs_gateway_requests_total{code="503",source="none"}`) == 100-addresses
	})
	abandon(t, ids, p.Addrs[0])
	for range 20 { // after these responses the gateway has begun with all requests sent before
		require.Equal(t, 400, p.Get("/no-file").StatusCode)
	}
	requireServed(t, other.served(healthy(1)), other.served(healthy(2)))
	_, err := fmt.Fprintf(stays, "GET /%s HTTP/1.1\r\nHost: gw.test\r\n\r\n", ids[len(ids)-1])
	require.NoError(t, err)
	head := make([]byte, 12)
	_, err = io.ReadFull(stays, head)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 503", string(head), "those that stay have all %d addresses", addresses)
}

// TestAttackSilentSource: a source accepts connections and never replies, and thousands of clients
// request files of it and disconnect. The gateway frees their resources at once, and serves others
// meanwhile.
func TestAttackSilentSource(t *testing.T) {
	t.Parallel()
	ids := idsAt(t, "127.77.0.1", 5000)
	port := e2e.Silence(t, 0, "127.77.0.1")
	c := e2e.NewCluster(t, fdfstest.Options{})
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(c, attackedEdge(port)...)))
	other := newBystander(p)
	other.served(e2e.Put(t, c, fdfstest.FileSpec{Group: "group2", Content: []byte("x"), Ext: "bin",
		Created: e2e.LongAgo.Add(-time.Second)}))
	goroutines, fds := p.Metric("go_goroutines"), p.Metric("process_open_fds")
	var attack sync.WaitGroup
	attack.Go(func() { abandon(t, ids, p.Addrs[0]) })
	defer attack.Wait()
	var times []time.Duration
	for i := range 5 {
		spec := fdfstest.FileSpec{Group: "group2", Content: []byte("x"), Ext: "bin",
			Created: e2e.LongAgo.Add(time.Duration(i) * time.Second)}
		times = append(times, other.served(e2e.Put(t, c, spec)))
	}
	requireServed(t, times...)
	attack.Wait()
	t.Logf("before: %v goroutines, %v descriptors; after: %v, %v; peak of memory: %d KB", goroutines, fds,
		p.Metric("go_goroutines"), p.Metric("process_open_fds"), p.Memory("VmHWM"))
	eventually.True(t, func() bool {
		return p.Metric("go_goroutines") < goroutines+100 && p.Metric("process_open_fds") < fds+100
	}, "what clients that have left had taken is still taken")
}
