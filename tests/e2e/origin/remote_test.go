package origin

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestEdge: a gateway serves every kind of file from other hosts whole, to HEAD and in ranges, and
// 304 without a download. Each group has one storage: a slow one would be helped by a hedged
// request to a second one, which would count as a second download.
func TestEdge(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: 1},
		{Name: "group2", Count: 1}}})
	s := storetest.New(t) // for bytes
	normal := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: s.Bytes(300000), Ext: "jpg",
		Created: e2e.LongAgo})
	files := map[string]fdfs.FileID{
		"normal": normal,
		"empty":  e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Ext: "txt", Created: e2e.LongAgo}),
		"trunk": e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: s.Bytes(5000), Kind: fdfs.KindTrunk,
			Ext: "jpg", Created: e2e.LongAgo}),
		"slave": e2e.Put(t, c, fdfstest.FileSpec{Master: normal, Kind: fdfs.KindSlave, Prefix: "_150x150",
			Content: s.Bytes(700), Ext: "jpg", Modified: e2e.LongAgo.Add(time.Hour)}),
		"appender": e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: s.Bytes(9000), Kind: fdfs.KindAppender,
			Ext: "log", Created: e2e.LongAgo}),
		"other group": e2e.Put(t, c, fdfstest.FileSpec{Group: "group2", Content: s.Bytes(600), Ext: "bin",
			Created: e2e.LongAgo}),
	}
	s = storetest.New(t)
	contents := map[string][]byte{"normal": s.Bytes(300000), "empty": nil, "trunk": s.Bytes(5000),
		"slave": s.Bytes(700), "appender": s.Bytes(9000), "other group": s.Bytes(600)}
	p := e2e.Edge(t, c, "[gateway]", "x_cache = true")
	for name, id := range files {
		t.Run(name, func(t *testing.T) {
			p, content := p.In(t), contents[name]
			whole := p.Get(e2e.Path(id))
			require.Equal(t, 200, whole.StatusCode, "%s", whole.Body)
			require.True(t, bytes.Equal(content, whole.Body), "%d bytes", len(whole.Body))
			require.Equal(t, "MISS", whole.Header.Get("X-Cache"))
			before := c.Downloads(id)
			head := p.Do("HEAD", e2e.Path(id))
			require.Equal(t, whole.ContentLength, head.ContentLength)
			require.Equal(t, whole.Header.Get("ETag"), head.Header.Get("ETag"))
			require.Equal(t, 304, p.Get(e2e.Path(id), "If-None-Match: "+whole.Header.Get("ETag")).StatusCode)
			require.Equal(t, 304, p.Get(e2e.Path(id),
				"If-Modified-Since: "+whole.Header.Get("Last-Modified")).StatusCode)
			require.Equal(t, 412, p.Get(e2e.Path(id), `If-Match: "x"`).StatusCode)
			require.Equal(t, before, c.Downloads(id), "none of these needs the bytes")
			if len(content) < 100 {
				return
			}
			part := p.Get(e2e.Path(id), "Range: bytes=50-99")
			require.Equal(t, 206, part.StatusCode)
			require.Equal(t, content[50:100], part.Body)
			after, fetched := c.Downloads(id), 50
			if name == "trunk" { // a slot is sent from verified bytes only, so all of it is fetched
				fetched = len(content)
			}
			// A slow reply costs a second download, of the same range.
			require.Positive(t, after.Downloads-before.Downloads)
			require.LessOrEqual(t, after.Bytes-before.Bytes, int64(fetched*(after.Downloads-before.Downloads)))
			require.GreaterOrEqual(t, after.Bytes-before.Bytes, int64(fetched))
			several := p.Get(e2e.Path(id), "Range: bytes=0-9,90-99")
			require.Equal(t, 206, several.StatusCode)
			require.True(t, bytes.Contains(several.Body, content[:10]) && bytes.Contains(several.Body, content[90:100]))
			require.Equal(t, 416, p.Get(e2e.Path(id), fmt.Sprintf("Range: bytes=%d-", len(content))).StatusCode)
		})
	}
	require.Equal(t, 404, p.Get("/group9"+strings.TrimPrefix(e2e.Path(normal), "/group1")).StatusCode,
		"the trackers know no such group")
	missing := s.Missing("jpg", e2e.LongAgo)
	require.Equal(t, 404, p.Get(missing.URL()).StatusCode)
	require.Positive(t, p.Metric(`fdfs_gateway_origin_fetches_total{result="ok"}`))
}

// TestSourceDown: if the source of a file does not run, a replica serves the file. If no storage
// runs, the response is 502 soon.
func TestSourceDown(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	content := storetest.New(t).Bytes(100000)
	id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: content, Ext: "jpg", Created: e2e.LongAgo})
	p := e2e.Edge(t, c)
	require.Equal(t, content, p.Get(e2e.Path(id)).Body)
	c.Storage(0).Kill()
	began := time.Now()
	a := p.Get(e2e.Path(id))
	require.Equal(t, 200, a.StatusCode, "%s", a.Body)
	require.True(t, bytes.Equal(content, a.Body))
	require.Less(t, time.Since(began), e2e.Prompt)
	c.Storage(1).Kill()
	began = time.Now()
	require.Equal(t, 502, p.Get(e2e.Path(id)).StatusCode)
	require.Less(t, time.Since(began), e2e.Prompt)
	require.NoError(t, c.Storage(0).Revive())
	eventually.True(t, func() bool { return p.Get(e2e.Path(id)).StatusCode == 200 }, "back by itself")
}

// TestReplicationLag: a gateway on the host of a storage whose replication is behind fetches
// missing files from the replicas; with try_replicas = false only those that may still arrive.
func TestReplicationLag(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	s := storetest.New(t)
	content := s.Bytes(1000)
	young := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: content, Ext: "jpg", Created: time.Now()})
	old := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: content, Ext: "jpg", Created: e2e.LongAgo})
	gone := s.Missing("jpg", time.Now())
	with := func(lines ...string) *e2e.Process {
		conf := s.Config(e2e.WithListen(append([]string{"storage_sync_file_max_delay = 3600", "tracker_server = " +
			c.Trackers()[0]}, lines...))...)
		return e2e.ServeConfig(t, e2e.WriteConfig(t, conf))
	}
	p := with()
	require.Equal(t, content, p.Get(e2e.Path(young)).Body)
	require.Equal(t, content, p.Get(e2e.Path(old)).Body, "lost here, but a replica has it")
	a := p.Get(gone.URL())
	require.Equal(t, 404, a.StatusCode)
	require.Equal(t, "5", a.Header.Get("Retry-After"))
	require.Equal(t, 404, p.Get(e2e.Path(young)+"?redirect=1").StatusCode, "never sent on")

	p = with("[gateway]", "try_replicas = false")
	require.Equal(t, content, p.Get(e2e.Path(young)).Body)
	require.Equal(t, 404, p.Get(e2e.Path(old)).StatusCode, "it should be here by now")
}

// hangsUp closes each connection to a listener at once, and sends a value for each, up to a
// hundred. The goroutine ends with the listener.
func hangsUp(ln net.Listener) <-chan struct{} {
	asked := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			asked <- struct{}{}
			_ = conn.Close()
		}
	}()
	return asked
}

// TestNoSourceByDefault: if no list names the storages, the gateway requests files from hosts in
// the networks of this host only if allow_sources permits this.
func TestNoSourceByDefault(t *testing.T) {
	t.Parallel()
	host := interfaceAddress(t)
	ln, err := net.Listen("tcp", net.JoinHostPort(host.String(), "0"))
	require.NoError(t, err)
	defer ln.Close()
	asked := hangsUp(ln)
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	gateway := func(lines ...string) *e2e.Process {
		lines = append([]string{"base_path = /nowhere", "store_path_count = 0", "url_have_group_name = true",
			"storage_server_port = " + port}, e2e.WithListen(lines)...)
		return e2e.ServeConfig(t, e2e.WriteConfig(t, strings.Join(lines, "\n")+"\n"))
	}
	file := "/" + e2e.IDFromAddress(t, host.String(), "group1")
	for _, lines := range [][]string{{"[gateway]"}, {"[gateway]", "allow_sources = 198.51.100.0/24"}} {
		p := gateway(lines...)
		require.Equal(t, 404, p.Get(file).StatusCode)
		require.Empty(t, asked)
		require.Equal(t, len(lines) == 1, strings.Contains(p.LogText(), "allow_sources"),
			"the log says what to set, where nothing is")
	}
	require.Equal(t, 502, gateway("[gateway]", "allow_sources = 198.51.100.0/24, local-networks").Get(file).StatusCode)
	require.NotEmpty(t, asked)
}

// interfaceAddress returns an IPv4 address of this host other than loopback.
func interfaceAddress(t *testing.T) netip.Addr {
	t.Helper()
	list, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range list {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Is4() &&
			!prefix.Addr().IsLoopback() {
			return prefix.Addr()
		}
	}
	t.Skip("SKIPPED: this host has no network but loopback")
	return netip.Addr{}
}

// TestClientLeavesFetchStops: a storage stops sending after the client has disconnected.
func TestClientLeavesFetchStops(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: make([]byte, 64<<20), Ext: "mp4",
		Created: e2e.LongAgo})
	p := e2e.Edge(t, c)
	conn := p.Dial()
	_, err := io.WriteString(conn, "GET "+e2e.Path(id)+" HTTP/1.1\r\nHost: gw.test\r\n\r\n")
	require.NoError(t, err)
	_, err = io.CopyN(io.Discard, conn, 1<<20)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	eventually.True(t, func() bool { return p.Metric(`fdfs_gateway_aborted_total{reason="client"}`) == 1 })
	require.Less(t, c.Downloads(id).Bytes, int64(64<<20))
	eventually.True(t, func() bool { return c.Storage(0).Counts().Open <= 1 })
	require.NotContains(t, p.LogText(), "level=ERROR")
}

// TestBrokenDisk: while a store path cannot be read, files that other storages have are still
// served.
func TestBrokenDisk(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	s := storetest.New(t)
	content := []byte("hello")
	id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: content, Ext: "txt", Created: e2e.LongAgo})
	p := e2e.ServeConfig(t, e2e.WriteConfig(t,
		s.Config(e2e.WithListen([]string{"tracker_server = " + c.Trackers()[0]})...)))
	root := s.Root(storetest.Group, 0)
	require.NoError(t, os.Rename(root, root+"-away"))
	eventually.True(t, func() bool { // a check that began before may still run
		status, _ := p.AdminGet("/readyz")
		return status == 503
	})
	require.Equal(t, content, p.Get(e2e.Path(id)).Body)
	require.Equal(t, 503, p.Get(s.Missing("txt", e2e.LongAgo).URL()).StatusCode,
		"no other host has it, but the disk might")
}

// TestTrackersDownAreNoLicence: while no tracker has replied, an address in the networks of this
// host is not used as a source.
func TestTrackersDownAreNoLicence(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	c.Tracker(0).Kill()
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(c, e2e.NoCache...)))
	a := p.Get("/" + e2e.IDFromAddress(t, "192.0.2.77", "group1"))
	require.Equal(t, 503, a.StatusCode)
	require.NotEmpty(t, a.Header.Get("Retry-After"))
}
