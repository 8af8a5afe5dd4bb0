package origin

import (
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// TestRedirect: a client is redirected to the storage that has the file. Location has the query of
// the request, and redirect=1 once.
func TestRedirect(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: []byte("hello"), Ext: "txt",
		Created: e2e.LongAgo})
	host := func(i int) string { return c.Storage(i).AddrPort().Addr().String() }
	p := e2e.ServeConfig(t, e2e.WriteConfig(t,
		"response_mode = redirect\n"+e2e.EdgeConfig(c, "[gateway]", "redirect_port = 8080")))
	location := func(query string) string {
		a := p.Get(e2e.Path(id)+query, "Range: bytes=0-1")
		require.Equal(t, 302, a.StatusCode, "%s", a.Body)
		require.Empty(t, a.Body)
		require.EqualValues(t, 0, a.ContentLength)
		return a.Header.Get("Location")
	}
	// A client is redirected to the source, too, if the storages take too long to reply whether
	// they have the file, as on a machine that stands still.
	for query, want := range map[string]string{"": "?redirect=1",
		"?filename=a%20b&token=x": "?filename=a%20b&token=x&redirect=1"} {
		eventually.True(t, func() bool { return location(query) == "http://"+host(0)+":8080"+e2e.Path(id)+want })
	}
	require.NoError(t, c.Remove(id, c.Storage(0)))
	eventually.True(t, func() bool {
		return p.Get(e2e.Path(id)).Header.Get("Location") == "http://"+host(1)+":8080"+e2e.Path(id)+"?redirect=1"
	}, "the replica has it")
	require.NoError(t, c.Remove(id))
	eventually.True(t, func() bool { return p.Get(e2e.Path(id)).StatusCode == 404 })
	require.Equal(t, 404, p.Get(e2e.Path(id)+"?redirect=1").StatusCode)
}

// TestRedirectToADeadHost: if the first candidate has just failed, and the gateway does not know
// this yet, a client is redirected to the other one, which has the file.
func TestRedirectToADeadHost(t *testing.T) {
	t.Parallel()
	for name, die := range map[string]func(*fdfstest.Storage) error{
		"connections are refused":  func(s *fdfstest.Storage) error { s.Kill(); return nil },
		"connections hang":         func(s *fdfstest.Storage) error { return s.Silence() },
		"it accepts and is silent": func(s *fdfstest.Storage) error { s.Partition(true); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := e2e.NewCluster(t, fdfstest.Options{})
			id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: []byte("hello"), Ext: "txt",
				Created: e2e.LongAgo})
			p := e2e.ServeConfig(t, e2e.WriteConfig(t, "response_mode = redirect\n"+
				e2e.EdgeConfig(c, "[gateway]", "redirect_port = 8080")))
			to := func() string {
				a := p.Get(e2e.Path(id))
				require.Equal(t, 302, a.StatusCode, "%s", a.Body)
				return strings.TrimSuffix(strings.TrimPrefix(a.Header.Get("Location"), "http://"),
					":8080"+e2e.Path(id)+"?redirect=1")
			}
			host := func(i int) string { return c.Storage(i).AddrPort().Addr().String() }
			eventually.True(t, func() bool { return to() == host(0) })
			require.NoError(t, die(c.Storage(0)))
			for range 3 {
				eventually.True(t, func() bool {
					began := time.Now()
					got, took := to(), time.Since(began)
					t.Logf("%v", took)
					// After 200 ms without a reply the client is redirected to the source: both
					// replies may be late.
					require.True(t, got == host(1) || took >= 200*time.Millisecond, "%s after %v", got, took)
					return got == host(1)
				})
			}
		})
	}
}

// TestRedirectDoesNotWait: if no storage replies whether it has the file, the client is soon
// redirected to the source.
func TestRedirectDoesNotWait(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: []byte("hello"), Ext: "txt",
		Created: e2e.LongAgo})
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, "response_mode = redirect\n"+e2e.EdgeConfig(c)))
	for i := range 2 {
		c.Storage(i).Partition(true)
	}
	began := time.Now()
	require.Equal(t, 302, p.Get(e2e.Path(id)).StatusCode)
	require.Less(t, time.Since(began), e2e.Prompt)
	_, text := p.AdminGet("/explain?url=" + e2e.Path(id))
	require.Contains(t, text, "302: redirect to the web server of "+c.Storage(0).AddrPort().Addr().String())
}
