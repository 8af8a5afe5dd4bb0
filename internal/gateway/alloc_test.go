//go:build !race

package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/httpserver/access"
	"fastdfs-gateway/internal/httpserver/clientaddr"
	"fastdfs-gateway/storage/local"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// The tests of this file run without the race detector, which allocates too. From the head of a
// request to the last byte of its response nothing is allocated, by any layer. The client of these
// tests allocates nothing.

// hotRequests are the fields of requests, by name.
var hotRequests = map[string]string{
	"plain": "",
	"browser": "User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: image/avif,image/webp,*/*;q=0.8\r\n" +
		"Accept-Language: en\r\nReferer: http://a.test/\r\n",
	"range":        "Range: bytes=10-19\r\n",
	"not modified": "If-None-Match: TAG\r\n",
}

// hotFiles returns a URL with a token for each way to send a file, by name.
func hotFiles(s *storetest.Store) map[string]string {
	urls := map[string]string{}
	for name, o := range map[string]storetest.Object{
		"memory": s.Normal("jpg", s.Bytes(4096)), "sendfile": s.Normal("mp4", s.Bytes(100_000)),
		"slot": s.Trunk("jpg", s.Bytes(100_000)),
	} {
		urls[name] = o.URL() + "?" + antisteal.Query("secret", o.ID.Logic, 0)
	}
	return urls
}

func hotOptions(t *testing.T, s *storetest.Store) Options {
	return Options{Store: openCache(t, s, local.FileCacheOptions{}), GroupInURL: true,
		Types: map[string]string{"jpg": "image/jpeg"}, CacheControl: "max-age=60",
		Tokens: antisteal.NewChecker(antisteal.Options{Secrets: []string{"other", "secret"}})}
}

// requireNoAllocations sends a request many times on one connection, and requires that nothing is
// allocated.
func (r *running) requireNoAllocations(url, fields, status, what string) {
	r.t.Helper()
	request := []byte("GET " + url + " HTTP/1.1\r\nHost: gw.test\r\n" + fields + "\r\n")
	first := r.dial()
	_, err := first.Write(request)
	require.NoError(r.t, err)
	var all bytes.Buffer
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(first, &all)), nil)
	require.NoError(r.t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(r.t, err)
	require.NoError(r.t, first.Close())

	c, response := r.dial(), make([]byte, all.Len())
	allocs := testing.AllocsPerRun(300, func() {
		_, err := c.Write(request)
		_, readErr := io.ReadFull(c, response)
		if err != nil || readErr != nil {
			r.t.Fatal(err, readErr)
		}
	})
	require.Zero(r.t, allocs, what)
	require.Equal(r.t, "HTTP/1.1 "+status, string(response[:12]), what)
}

// requireHot sends all hotRequests for a file.
func (r *running) requireHot(url, what string) {
	r.t.Helper()
	tag := regexp.MustCompile(`ETag: ([^\r]*)`).FindStringSubmatch(r.ask("GET", url))[1]
	for name, fields := range hotRequests {
		status := map[string]string{"range": "206", "not modified": "304"}[name]
		r.requireNoAllocations(url, strings.ReplaceAll(fields, "TAG", tag), cmp.Or(status, "200"), what+", "+name)
	}
}

// TestHotPathAllocatesNothing: requests for files of this host that are kept open or in memory
// allocate nothing.
func TestHotPathAllocatesNothing(t *testing.T) {
	s := storetest.New(t)
	r := run(t, hotOptions(t, s), httpserver.Options{MinSendRate: 1})
	for name, url := range hotFiles(s) {
		r.requireHot(url, name)
	}
}

// TestMissingAllocatesNothing: neither do requests for files that are missing.
func TestMissingAllocatesNothing(t *testing.T) {
	s := storetest.New(t)
	normal, packed := s.Normal("jpg", s.Bytes(100)), s.Trunk("jpg", s.Bytes(100))
	require.NoError(t, os.Remove(normal.Path))
	s.Free(packed)
	o := hotOptions(t, s)
	o.Tokens = nil
	r := run(t, o, httpserver.Options{})
	for what, object := range map[string]storetest.Object{"normal": normal, "packed": packed} {
		r.requireNoAllocations(object.URL(), "", "404", what)
	}
}

// TestHitsAllocateNothing: requests for files of other hosts that are in memory allocate nothing.
func TestHitsAllocateNothing(t *testing.T) {
	content := strings.Repeat("x", 4096)
	for _, kind := range []string{"normal", "packed", "without M00"} {
		r, _, _ := edge(t, Options{CacheControl: "max-age=60"}, &fakeProtocol{content: content})
		url := kinds(t, content)[kind]
		r.untilHit(url)
		r.requireHot(url, kind)
	}
}

// TestRulesAllocateNothing: the rules on the client behind a proxy, its rate and its referer
// allocate nothing.
func TestRulesAllocateNothing(t *testing.T) {
	s := storetest.New(t)
	referers, err := access.NewReferers([]string{"none", "*.good.test"})
	require.NoError(t, err)
	o := hotOptions(t, s)
	o.Proxies = proxies(t, "127.0.0.0/8", clientaddr.ByForwardedFor)
	o.Rules = &Rules{Allow: networksOf(t, "192.0.2.0/24"), Deny: networksOf(t, "10.0.0.0/8"), Referers: referers,
		Requests: access.NewLimiter(1e6, 1e6)}
	r := run(t, o, httpserver.Options{})
	for name, url := range hotFiles(s) {
		r.requireNoAllocations(url, "X-Forwarded-For: 6.6.6.6, 192.0.2.1\r\nX-Forwarded-Proto: https\r\n"+
			"Referer: https://www.good.test/page\r\n", "200", name)
	}
}
