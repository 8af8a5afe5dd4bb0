package origin

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestUpstreamHTTP: a gateway with upstream = http serves the files of another gateway's store,
// with the same type, length and date.
func TestUpstreamHTTP(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	content := s.Bytes(3 << 20)
	source := fdfs.Source{127, 0, 0, 21}
	file := s.From(source, "mp4", content)
	slave := s.Slave(file, "_b", "txt", s.Bytes(500))
	link := s.TrunkLink(s.Trunk("txt", s.Bytes(5000)))
	link.ID = aliasOf(t, link.ID, source, 1)
	conf := strings.Replace(s.Config(e2e.WithListen([]string{"[open_file_cache]", "valid = 0"})...),
		"listen = 127.0.0.1:0",
		"listen = 127.0.0.21:0", 1)
	origin := e2e.ServeConfig(t, e2e.WriteConfig(t, conf))
	_, port, err := net.SplitHostPort(origin.Addrs[0])
	require.NoError(t, err)
	empty := storetest.New(t)
	p := e2e.ServeConfig(t,
		e2e.WriteConfig(t, empty.Config(e2e.WithListen([]string{"storage_sync_file_max_delay = 900000000", "[gateway]",
			"upstream = http", "upstream_http_port = " + port, "allow_sources = 127.0.0.21/32", "[cache]",
			"memory_max = 0"})...)))
	for _, o := range []storetest.Object{file, slave, link} {
		direct, through := origin.Get(o.URL()), p.Get(o.URL())
		require.Equal(t, 200, through.StatusCode, "%s", through.Body)
		require.True(t, bytes.Equal(o.Content, through.Body))
		for _, h := range []string{"Content-Type", "Content-Length", "Last-Modified", "Accept-Ranges"} {
			require.Equal(t, direct.Header.Get(h), through.Header.Get(h), h)
		}
		part := p.Get(o.URL(), "Range: bytes=100-299")
		require.Equal(t, 206, part.StatusCode)
		require.Equal(t, o.Content[100:300], part.Body)
		require.Equal(t, 304, p.Get(o.URL(), "If-None-Match: "+through.Header.Get("ETag")).StatusCode)
	}
	require.Equal(t, 404, p.Get(s.Missing("jpg", e2e.LongAgo).URL()).StatusCode)
	require.NoError(t, os.Remove(file.Path))
	require.Equal(t, 404, p.Get(file.URL()).StatusCode)
}

// TestUpstreamPortByTLS: without upstream_http_port, requests over TLS use the plain port of the
// gateway for the web server of the source, as plain requests do.
func TestUpstreamPortByTLS(t *testing.T) {
	t.Parallel()
	s, source := storetest.New(t), fdfs.Source{127, 0, 0, 21}
	file := s.From(source, "txt", []byte("hello"))
	port, asked := webServer(t, "127.0.0.21", file.Content)
	dir := t.TempDir()
	e2e.Certificate(t, dir)
	conf := "base_path = /nowhere\nstore_path_count = 0\ngroup_name = group1\nurl_have_group_name = true\n[gateway]\n" +
		"listen = 127.0.0.22:" + port + ", unix:" + dir + "/plain\nadmin_listen = 127.0.0.1:0\nupstream = http\n" +
		"allow_sources = 127.0.0.21\ntls_listen = 127.0.0.1:0\n" +
		"tls_cert = " + dir + "/cert.pem\ntls_key = " + dir + "/key.pem\n[cache]\nmemory_max = 0\n"
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, conf))
	require.NotContains(t, p.LogText(), "set upstream_http_port")
	require.Equal(t, file.Content, p.Get(file.URL()).Body)
	var byTLS []string
	eventually.True(t, func() bool {
		byTLS = regexp.MustCompile(`msg=serving address=(\S+) tls=true`).FindStringSubmatch(p.LogText())
		return byTLS != nil
	})
	q := &e2e.Process{T: t, Addrs: byTLS[1:], TLS: &tls.Config{InsecureSkipVerify: true}}
	for _, client := range []*http.Client{nil, q.HTTP2Client()} {
		q.HTTP2 = client
		require.Equal(t, file.Content, q.Get(file.URL()).Body, p.LogText())
	}
	require.Len(t, asked(), 3*len([]string{http.MethodHead, http.MethodGet}))
}

// webServer starts a web server that responds to every request with the content. asked returns the
// targets of the requests since its last call.
func webServer(t *testing.T, ip string, content []byte) (port string, asked func() []string) {
	ln, err := net.Listen("tcp", ip+":0")
	require.NoError(t, err)
	targets := make(chan string, 100)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		targets <- r.RequestURI
		http.ServeContent(w, r, "", storetest.Created, bytes.NewReader(content))
	})}
	go func() { _ = server.Serve(ln) }() // ends by Close
	t.Cleanup(func() { _ = server.Close() })
	_, port, err = net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	return port, func() (list []string) {
		for len(targets) > 0 {
			list = append(list, <-targets)
		}
		return list
	}
}

// TestTargetOfTheID: requests to other web servers, and redirects, have the path of the parsed id,
// whatever the spelling in the request.
func TestTargetOfTheID(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	source := fdfs.Source{127, 0, 0, 21}
	file := s.From(source, "txt", []byte("hello"))
	port, asked := webServer(t, "127.0.0.21", file.Content)
	edge := func(lines ...string) *e2e.Process {
		lines = append([]string{"base_path = /nowhere", "store_path_count = 0", "group_name = group1"},
			e2e.WithListen(lines)...)
		return e2e.ServeConfig(t, e2e.WriteConfig(t, strings.Join(lines, "\n")+"\n"))
	}
	web := []string{"[gateway]", "allow_sources = 127.0.0.21", "upstream = http", "upstream_http_port = " + port}
	const spelled = "/files/admin/%3fcmd=x%26a/..%2f..%2f"
	ask := func(p *e2e.Process, path, query string) {
		require.Contains(t, p.Raw(e2e.Request("GET", spelled+path+query, "Connection: close")), "200 OK\r\n")
	}
	group := "url_have_group_name = true"
	t.Run("without a cache", func(t *testing.T) {
		p := edge(append(append([]string{group}, web...), "url_prefix = /files", "[cache]", "memory_max = 0")...)
		ask(p, file.ID.String(), "?a=b&filename=x&redirect=0&token=a%26b&ts=7")
		for _, target := range asked() {
			require.Equal(t, "/files/"+file.ID.String()+"?token=a%26b&ts=7&redirect=1", target)
		}
		ask(p, file.ID.String(), "")
		for _, target := range asked() {
			require.Equal(t, "/files/"+file.ID.String()+"?redirect=1", target)
		}
	})
	t.Run("with a cache", func(t *testing.T) {
		p := edge(append(web, "url_prefix = /files")...)
		ask(p, file.ID.Logic, "?token=a")
		first := asked()
		require.NotEmpty(t, first)
		for _, target := range first {
			require.Equal(t, "/files/"+file.ID.Logic+"?redirect=1", target)
		}
		for i := range 5 {
			ask(p, file.ID.Logic, "?token="+strconv.Itoa(i))
		}
		require.Empty(t, asked(), "a token does not lead around the cache")
	})
	t.Run("with tokens of its own", func(t *testing.T) {
		p := edge(append(append([]string{group, "http.anti_steal.check_token = true",
			"http.anti_steal.secret_key = a-long-secret-of-ours",
			"anti_steal_bypass_header_name = X-Pass", "anti_steal_bypass_header_value = yes"}, web...),
			"url_prefix = /files", "[cache]", "memory_max = 0")...)
		require.Equal(t, 200, p.Get("/files/"+file.ID.String()+"?token=the-client-s&ts=1", "X-Pass: yes").StatusCode)
		for _, target := range asked() {
			require.Regexp(t, "^/files/"+file.ID.String()+`\?token=[0-9a-f]{32}&ts=[0-9]+&redirect=1$`, target)
		}
	})
	t.Run("redirect", func(t *testing.T) {
		p := edge(append([]string{group, "response_mode = redirect", "[gateway]", "allow_sources = 127.0.0.21",
			"redirect_port = 81", "try_replicas = false"}, "url_prefix = /files")...)
		a := p.Raw(e2e.Request("GET", spelled+file.ID.String()+"?filename=a%20b&redirect=0&token=x",
			"Connection: close"))
		require.Contains(t, a, "302 Found\r\n")
		require.Contains(t, a, "\r\nLocation: http://127.0.0.21:81/files/"+file.ID.String()+
			"?filename=a%20b&token=x&redirect=1\r\n")
	})
}
