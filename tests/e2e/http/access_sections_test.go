package http

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

const (
	goodReferer = "Referer: https://www.good.test/shop/1"
	evilReferer = "Referer: https://evil.test/"
)

// accessSections are the sections for the tests of files of this host and of another one.
var accessSections = []string{
	"[access]", "deny = 192.0.2.1", "referer_redirect = https://www.good.test/no.html",
	"[access jpg png]", "referers = none, *.good.test",
	"[access mp4]", "referers = *.good.test", "referer_redirect =",
	"[access group2/]", "deny = 127.0.0.0/8",
	"[access group2/ gif]", "deny =",
	"[access group2/ mp4]", "allow = 127.0.0.0/8", "referers =", "deny = ",
}

// accessByFile are the statuses of files by group and extension: without Referer, with a good and
// with an evil one.
var accessByFile = map[string][3]int{
	"group1 jpg": {200, 200, 302}, "group1 PNG": {200, 200, 302}, "group1 gif": {200, 200, 200},
	"group1 mp4": {403, 200, 403}, "group2 jpg": {403, 403, 403}, "group2 gif": {200, 200, 200},
	"group2 mp4": {200, 200, 200},
}

func requireAccess(t *testing.T, p *e2e.Process, name, url string) {
	for i, referer := range []string{"Accept: */*", goodReferer, evilReferer} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			resp := p.Do(method, url, referer)
			require.Equal(t, accessByFile[name][i], resp.StatusCode, "%s: %s %s", name, method, referer)
			if resp.StatusCode == http.StatusFound {
				require.Equal(t, "https://www.good.test/no.html", resp.Header.Get("Location"))
			}
		}
	}
}

// TestAccessSections: rules apply by extension, group and store path, to normal and trunk files of
// this host, over HTTP/1.1 and HTTP/2.
func TestAccessSections(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p := e2e.Serve(t, s, append(accessSections, "[gateway]", "[access M01/]", "deny = 127.0.0.1",
		"[access zip]", "send_rate = 100", "send_rate_after = 100KB")...)
	second := p.OverHTTP2()
	for name := range accessByFile {
		group, ext, _ := strings.Cut(name, " ")
		requireAccess(t, p, name, s.In(group, 0, ext, s.Bytes(100)).URL())
		if group == storetest.Group {
			requireAccess(t, p, name, s.Trunk(ext, s.Bytes(100)).URL())
			requireAccess(t, second, name, s.Normal(ext, s.Bytes(100)).URL())
		}
	}
	archive := s.Normal("zip", s.Bytes(100_000))
	require.Equal(t, archive.Content, p.Get(archive.URL()).Body, "its first 100 KB have no rate")
	require.Equal(t, 403, p.Get(s.In(storetest.Group, 1, "gif", s.Bytes(10)).URL()).StatusCode)
	require.Equal(t, 404, p.Get(s.Missing("gif", storetest.Created).URL()).StatusCode)
	require.Equal(t, 302, p.Get(s.Missing("jpg", storetest.Created).URL(), evilReferer).StatusCode)
	require.Equal(t, 400, p.Get("/nothing").StatusCode)
	require.Equal(t, 405, p.Do(http.MethodPost, s.Missing("gif", storetest.Created).URL()).StatusCode)
}

// TestAccessSectionsOfRemoteFiles: the rules apply before a fetch, to cached files, and before a
// redirect.
func TestAccessSectionsOfRemoteFiles(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	for _, mode := range []string{"proxy", "redirect"} {
		p := e2e.ServeConfig(t, e2e.WriteConfig(t,
			"response_mode = "+mode+"\n"+e2e.EdgeConfig(c, accessSections...)))
		for _, name := range []string{"group1 mp4", "group2 jpg"} {
			group, ext, _ := strings.Cut(name, " ")
			spec := fdfstest.FileSpec{Group: group, Ext: ext, Content: e2e.RandomContent(5000), Created: e2e.LongAgo}
			url := e2e.Path(e2e.Put(t, c, spec))
			const fetched = `fdfs_gateway_origin_bytes_total`
			before := p.Metric(fetched)
			require.Equal(t, 403, p.Get(url).StatusCode, "%s %s", mode, name)
			require.Equal(t, before, p.Metric(fetched))
			if mode == "proxy" {
				requireAccess(t, p, name, url)
				requireAccess(t, p, name, url)
			} else if name == "group1 mp4" {
				require.Equal(t, 302, p.Get(url, goodReferer).StatusCode)
			}
		}
	}
}

// TestAccessSectionRates: each section counts its requests separately, a reload keeps the counts,
// and the clients of unlimited have no limit.
func TestAccessSectionRates(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	jpg, zip := s.Normal("jpg", s.Bytes(10)).URL(), s.Normal("zip", s.Bytes(10)).URL()
	other := s.In(storetest.Other, 0, "jpg", s.Bytes(10)).URL()
	p := e2e.Serve(t, s, "[gateway]", "trusted_proxies = 127.0.0.0/8", "client_address = x-real-ip",
		"[access]", "requests_per_second = 0.01", "requests_burst = 3", "unlimited = 192.0.2.0/24",
		"[access zip]", "requests_per_second = 0.5", "unlimited =",
		"[access group2/]", "requests_per_second = 0",
		"[access zip group1/]", "requests_burst = 1")
	ask := func(url, client string, statuses ...int) {
		t.Helper()
		for _, status := range statuses {
			require.Equal(t, status, p.Get(url, "X-Real-IP: "+client).StatusCode)
		}
	}
	ask(zip, "10.0.0.1", 200, 429)
	ask(jpg, "10.0.0.1", 200, 200, 200, 429)
	ask(other, "10.0.0.1", 200, 200, 200, 200, 200)
	ask("/nothing", "10.0.0.1", 429)
	ask(jpg, "192.0.2.7", 200, 200, 200, 200, 200)
	ask(zip, "192.0.2.7", 200, 429)
	code, body := p.AdminPost("/reload", "")
	require.Equal(t, 200, code, body)
	ask(jpg, "10.0.0.1", 429)
	ask(zip, "192.0.2.7", 429)
}

// TestUnlimitedConnections: max_connections_per_ip does not apply to the clients of unlimited, be
// they connected directly or named by a PROXY protocol header, and does to other clients of the
// proxy.
func TestUnlimitedConnections(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(4<<20))
	p := e2e.Serve(t, s, "[gateway]", "max_connections_per_ip = 1", "[access]", "send_rate = 1MB",
		"unlimited = 127.0.0.0/8")
	for range 3 {
		_, c := p.Download(f.URL())
		defer c.Close()
	}
	require.Equal(t, 200, p.Do(http.MethodHead, f.URL()).StatusCode)

	p = e2e.Serve(t, s, "[gateway]", "max_connections_per_ip = 1", "trusted_proxies = 127.0.0.0/8",
		"client_address = proxy-protocol", "[access]", "send_rate = 1MB", "unlimited = 192.0.2.0/24")
	for range 3 {
		require.Equal(t, 200, proxiedStatus(t, p, "192.0.2.1", f.URL()))
	}
	require.Equal(t, 200, proxiedStatus(t, p, "203.0.113.1", f.URL()))
	require.Equal(t, 429, proxiedStatus(t, p, "203.0.113.1", f.URL()))
}

// proxiedStatus returns the status of a download by a client behind a proxy. Its connection stays
// open until the end of the test.
func proxiedStatus(t *testing.T, p *e2e.Process, client, url string) int {
	t.Helper()
	c, err := proxied(client)(t.Context(), "tcp", p.Addrs[0])
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, e2e.Request(http.MethodGet, url))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	return resp.StatusCode
}

// proxied returns a dial function for connections that begin with the header of a proxy.
func proxied(client string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			_, err = io.WriteString(c, "PROXY TCP4 "+client+" 198.51.100.1 56324 443\r\n")
		}
		return c, err
	}
}
