package origin

import (
	"bytes"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// fakeWebs are web servers on one port of several hosts, which have the same content for all files.
type fakeWebs struct {
	port   string
	silent atomic.Int64 // the first host sends so many bytes of each body and then nothing; -1 = no head; -2 = all
	fail   atomic.Int64 // number of the host that responds with 500 to all requests; -1 = none
}

// startFakeWebs starts a web server on each host. contents are theirs in turn, the last one that of
// all others.
func startFakeWebs(t *testing.T, hosts []string, contents ...[]byte) *fakeWebs {
	t.Helper()
	f := &fakeWebs{port: "0"}
	f.silent.Store(-2)
	f.fail.Store(-1)
	end := make(chan struct{})
	for i, host := range hosts {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, f.port))
		require.NoError(t, err)
		_, f.port, err = net.SplitHostPort(ln.Addr().String())
		require.NoError(t, err)
		content := contents[min(i, len(contents)-1)]
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if f.fail.Load() == int64(i) {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			if sent := f.silent.Load(); i == 0 && sent > -2 {
				w = &silentWriter{w, sent, end}
			}
			http.ServeContent(w, r, "", e2e.LongAgo, bytes.NewReader(content))
		})}
		go func() { _ = server.Serve(ln) }() // ends by Close
		t.Cleanup(func() { _ = server.Close() })
	}
	t.Cleanup(func() { close(end) })
	return f
}

// silentWriter stops in the middle of a response until the test ends.
type silentWriter struct {
	http.ResponseWriter
	left int64 // bytes of the body that it still sends; negative: not even the head
	end  chan struct{}
}

func (w *silentWriter) WriteHeader(status int) {
	if w.left < 0 {
		<-w.end
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *silentWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p[:min(int64(len(p)), max(w.left, 0))])
	if w.left -= int64(n); w.left <= 0 && err == nil {
		w.ResponseWriter.(http.Flusher).Flush()
		<-w.end
	}
	return n, err
}

// hostsOf are the hosts of the storages of group1.
func hostsOf(c *fdfstest.Cluster, n int) (hosts []string) {
	for i := range n {
		hosts = append(hosts, c.Storage(i).AddrPort().Addr().String())
	}
	return hosts
}

// TestWebServerSaysNothing: a web server that accepts connections and sends nothing, or nothing
// more, is replaced by another one as a storage is, and the log reports it. The timeout of a read
// is 60 s.
func TestWebServerSaysNothing(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for name, test := range map[string]struct {
		size   int
		silent int64
		lines  []string
		logged string
	}{
		"cold small file":                {20_000, -1, nil, "storage is suspect"},
		"cold small file, without cache": {20_000, -1, []string{"[cache]", "memory_max = 0"}, "storage is suspect"},
		"in the middle":                  {20 << 20, 1 << 20, nil, "download goes on"},
		"in the middle, without a cache": {20 << 20, 1 << 20, []string{"[cache]", "memory_max = 0"},
			"download goes on"},
	} {
		content := s.Bytes(test.size) // not in the subtests, which run at the same time
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := e2e.NewCluster(t, fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: 2}}})
			id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: content, Ext: "bin",
				Created: e2e.LongAgo,
				Kind:    fdfs.KindNormal})
			web := startFakeWebs(t, hostsOf(c, 2), content)
			web.silent.Store(test.silent)
			p := e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(c, append([]string{"[gateway]", "upstream = http",
				"upstream_http_port = " + web.port}, test.lines...)...)))
			began := time.Now()
			gap, err := longestGap("http://"+p.Addrs[0]+e2e.Path(id), content)
			require.NoError(t, err)
			if test.silent < 0 {
				gap = time.Since(began) // until the head, which longestGap does not count
			}
			require.Less(t, gap, stallBound)
			require.Contains(t, p.LogText(), test.logged)
			t.Logf("longest gap: %v", gap)
		})
	}
}
