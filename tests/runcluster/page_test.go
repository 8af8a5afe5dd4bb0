package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// TestPage: the page shows the nodes that run, and its buttons kill and start them. Requests from
// pages of other origins are rejected.
func TestPage(t *testing.T) {
	cluster, err := fdfstest.Start(fdfstest.Options{})
	require.NoError(t, err)
	defer cluster.Close()
	s := &site{redis: "127.0.0.1:1", files: []pageFile{{Title: i18n.Plain("<b>"), Kind: "video", URL: "http://h/a",
		ID: "group1/M00/a"}}}
	for _, storage := range cluster.Storages() {
		s.storages = append(s.storages, &storageNode{Storage: storage})
	}
	server := httptest.NewServer(s)
	defer server.Close()
	s.addr = strings.TrimPrefix(server.URL, "http://")
	do := func(method, path, addr, site, host string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path,
			strings.NewReader(url.Values{"addr": {addr}}.Encode()))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", site)
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(page)
	}
	first := cluster.Storage(0)
	code, page := do("GET", "/", "", "none", s.addr)
	require.Equal(t, 200, code)
	require.Equal(t, len(cluster.Storages()), strings.Count(page, ">runs<"))
	require.Contains(t, page, first.Addr())
	require.Contains(t, page, `<video controls preload="none" src="http://h/a">`)
	require.Contains(t, page, "&lt;b&gt;")

	for _, rejected := range []struct {
		path, addr, site, host string
		code                   int
	}{
		{"/kill", first.Addr(), "cross-site", s.addr, 403}, {"/kill", first.Addr(), "same-site", s.addr, 403},
		{"/kill", first.Addr(), "same-origin", "evil.example", 421}, {"/kill", "127.0.0.1:1", "same-origin", s.addr,
			404},
	} {
		code, _ = do("POST", rejected.path, rejected.addr, rejected.site, rejected.host)
		require.Equal(t, rejected.code, code)
	}
	code, _ = do("GET", "/kill?addr="+first.Addr(), "", "none", s.addr)
	require.Equal(t, 405, code)
	_, page = do("GET", "/", "", "none", s.addr)
	require.NotContains(t, page, "is down")

	for range 2 { // a second click does nothing
		code, page = do("POST", "/kill", first.Addr(), "same-origin", s.addr)
		require.Equal(t, 200, code, "the page, after a redirect")
		require.Equal(t, 1, strings.Count(page, ">is down<"))
		require.Equal(t, 1, strings.Count(page, `action="/start"`))
	}
	for range 2 {
		_, page = do("POST", "/start", first.Addr(), "same-origin", s.addr)
		require.NotContains(t, page, "is down")
	}
}
