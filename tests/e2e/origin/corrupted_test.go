package origin

import (
	"bytes"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestCorruptedReplica: no client gets a whole corrupted body if one of two storages has corrupted
// bytes of a file, and after the first request all clients get the right content. The corrupted
// storage is healthy and the good one suspect, so the corrupted one comes first in each order, also
// when the file is read again.
func TestCorruptedReplica(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	noCache := []string{"[cache]", "memory_max = 0"}
	for name, test := range map[string]struct {
		size  int
		web   bool
		lines []string
	}{
		"one segment": {300_000, false, nil}, "several segments": {9 << 20, false, nil},
		"without a cache": {300_000, false, noCache}, "web servers": {300_000, true, nil},
		"web servers, several segments":   {9 << 20, true, nil},
		"web servers, without a cache":    {300_000, true, noCache},
		"without a cache, in memory once": {5000, false, noCache},
	} {
		content := s.Bytes(test.size) // not in the subtests, which run in parallel
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrong := bytes.Clone(content)
			wrong[test.size/2] ^= 1
			c := e2e.NewCluster(t, fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: 2}}})
			id, lines, suspect := corruptedReplica(t, c, content, wrong, test.web)
			p := e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(c, append(lines, test.lines...)...)))
			suspect(p)
			for i := range 4 {
				_, body, err := p.Try(e2e.Path(id))
				require.False(t, bytes.Equal(wrong, body), "request %d", i)
				if i > 0 {
					require.NoError(t, err)
					require.True(t, bytes.Equal(content, body), "request %d: %d bytes", i, len(body))
				}
			}
			p.Logged("has corrupted content of a file, and is not asked for it")
			require.NotContains(t, p.LogText(), "file is taken for a link")
		})
	}
}

// corruptedReplica puts a file on the two storages of group1; the first one, its source, has wrong
// bytes. lines are lines of the configuration. suspect makes the second one fail once, with another
// file.
func corruptedReplica(t *testing.T, c *fdfstest.Cluster, content, wrong []byte, web bool) (id fdfs.FileID,
	lines []string, suspect func(p *e2e.Process)) {
	t.Helper()
	spec := fdfstest.FileSpec{Storage: c.Storage(0), Content: content, Ext: "bin", Created: e2e.LongAgo}
	id = e2e.Put(t, c, spec)
	spec.Storage = c.Storage(1)
	if spec.Content = []byte("another file"); web {
		spec.Content = content
	}
	other := e2e.Put(t, c, spec)
	if web {
		servers := startFakeWebs(t, c, wrong, content)
		servers.fail.Store(1)
		return id, []string{"[gateway]", "upstream = http", "upstream_http_port = " + servers.port},
			func(p *e2e.Process) {
				_, _, _ = p.Try(e2e.Path(other)) // the response may be aborted, or an error
				servers.fail.Store(-1)
			}
	}
	c.Storage(0).Corrupt(id, wrong)
	c.Storage(1).SetFaults(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, Status: 5})
	return id, nil, func(p *e2e.Process) {
		_, _, _ = p.Try(e2e.Path(other)) // the response may be aborted, or an error
		c.Storage(1).SetFaults()
	}
}

// fakeWebs are web servers on one port of the hosts of storages. Each has one content for all
// files.
type fakeWebs struct {
	port string
	fail atomic.Int64 // number of the host that responds with 500 to all requests; -1 = none
}

// startFakeWebs starts a web server on the host of each of the first storages.
func startFakeWebs(t *testing.T, c *fdfstest.Cluster, contents ...[]byte) *fakeWebs {
	t.Helper()
	f := &fakeWebs{port: "0"}
	f.fail.Store(-1)
	for i, content := range contents {
		ln, err := net.Listen("tcp", net.JoinHostPort(c.Storage(i).AddrPort().Addr().String(), f.port))
		require.NoError(t, err)
		_, f.port, err = net.SplitHostPort(ln.Addr().String())
		require.NoError(t, err)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if f.fail.Load() == int64(i) {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			http.ServeContent(w, r, "", e2e.LongAgo, bytes.NewReader(content))
		})}
		go func() { _ = server.Serve(ln) }() // ends by Close
		t.Cleanup(func() { _ = server.Close() })
	}
	return f
}
