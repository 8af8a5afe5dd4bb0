package http

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// headerSections are the sections for the tests of files of this host and of another one.
var headerSections = []string{"[gateway]", "cache_control = max-age=60", "cors_origin = *", "x_cache = true",
	"active_content = sandbox",
	"[headers]", "X-All = a", "x-frame-options = DENY", "Content-Language = en",
	"[headers jpg PNG]", "Cache-Control = max-age=1", "X-Kind = image",
	"[headers group2/ jpg]", "X-Kind = second", "Access-Control-Allow-Origin =", "Content-Disposition = attachment",
	"[headers txt]", "Cache-Control =", "X-All =", "Access-Control-Allow-Origin =", "X-Content-Type-Options =",
	"[headers svg]", "Content-Security-Policy = default-src 'self'",
	"[headers xml]", "Content-Security-Policy ="}

// TestDifferencesFileHeaders: [headers] applies by extension, group and store path to all responses
// with a file.
func TestDifferencesFileHeaders(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p := e2e.Serve(t, s, append(headerSections, "[headers group1/M01/]", "X-Path = one", "[headers M00/ bin]",
		"X-Path = zero")...)
	jpg, packed := s.Normal("jpg", s.Bytes(600)), s.Trunk("PNG", s.Bytes(100))
	image := []string{"X-All: a", "X-Kind: image", "X-Frame-Options: DENY", "Cache-Control: max-age=1",
		"Access-Control-Allow-Origin: *"}
	whole := append([]string{"Content-Language: en", "Content-Disposition", "X-Cache: LOCAL"}, image...)
	text, second := s.Normal("txt", s.Bytes(100)), s.In(storetest.Other, 0, "jpg", s.Bytes(100))
	svg, xml := s.Normal("svg", s.Bytes(100)), s.Normal("xml", s.Bytes(100))
	differ(t, p, []difference{
		{name: "headers by extension", url: jpg.URL(), status: 200, headers: whole},
		{name: "headers of HEAD", method: http.MethodHead, url: jpg.URL(), status: 200, headers: whole},
		{name: "headers of a packed file", url: packed.URL(), status: 200, headers: whole},
		{name: "headers of a range", url: packed.URL(), send: []string{"Range: bytes=0-1"}, status: 206,
			headers: whole},
		{name: "headers of ranges", url: jpg.URL(), send: []string{"Range: bytes=0-1,5-6"}, status: 206,
			headers: whole},
		{name: "headers of 304", url: jpg.URL(), send: []string{"If-None-Match: *"}, status: 304,
			headers: append([]string{"Content-Language"}, image...)},
		{name: "no headers of files on 416", url: jpg.URL(), send: []string{"Range: bytes=900-"}, status: 416,
			headers: []string{"X-All", "X-Kind", "Cache-Control", "Access-Control-Allow-Origin: *"}},
		{name: "no headers of files on 404", url: s.Missing("jpg", storetest.Created).URL(), status: 404,
			headers: []string{"X-All", "Access-Control-Allow-Origin: *"}},
		{name: "headers by group and extension", url: second.URL(), status: 200, headers: []string{"X-Kind: second",
			"Access-Control-Allow-Origin", "Cache-Control: max-age=1", "Content-Disposition: attachment"}},
		{name: "attachment with the name of the request", url: second.URL() + "?filename=a.jpg", status: 200,
			headers: []string{`Content-Disposition: attachment; filename="a.jpg"`}},
		{name: "removed headers", url: text.URL(), status: 200,
			headers: []string{"Cache-Control", "X-All", "Access-Control-Allow-Origin", "X-Content-Type-Options",
				"X-Frame-Options: DENY"}},
		{name: "headers by store path", url: s.In(storetest.Group, 1, "gif", s.Bytes(10)).URL(), status: 200,
			headers: []string{"X-Path: one"}},
		{name: "headers by store path of every group", status: 200,
			url: s.In(storetest.Other, 0, "bin", s.Bytes(10)).URL(), headers: []string{"X-Path: zero"}},
		{name: "another store path", url: s.In(storetest.Group, 1, "bin", s.Bytes(10)).URL(), status: 200,
			headers: []string{"X-Path: one"}},
		{name: "a removed sandbox", url: xml.URL(), status: 200, headers: []string{"Content-Security-Policy"}},
	})
	t.Run("the sandbox stays beside another policy", func(t *testing.T) {
		require.ElementsMatch(t, []string{"sandbox", "default-src 'self'"},
			p.In(t).Get(svg.URL()).Header.Values("Content-Security-Policy"))
	})
}

// TestDifferencesErrorPages: the bodies of errors come from the files of [error_pages], which a
// reload reads again.
func TestDifferencesErrorPages(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	dir := t.TempDir()
	page := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	missing := page("404.html", "<h1>missing</h1>\n")
	p := e2e.Serve(t, s, "[gateway]", "cors_origin = *", "[error_pages]", "404 = "+missing,
		"4xx = "+page("4xx.txt", "wrong\n"))
	file, gone, byHTTP2 := s.Normal("jpg", s.Bytes(10)), s.Missing("jpg", storetest.Created), p.OverHTTP2()
	for _, tt := range []struct {
		name, method, url string
		send              []string
		status            int
		mediaType, body   string
		headers           []string
	}{
		{"page of a status", "GET", gone.URL(), nil, 404, "text/html", "<h1>missing</h1>\n",
			[]string{"X-Content-Type-Options: nosniff", "Access-Control-Allow-Origin: *"}},
		{"page of a class", "GET", "/favicon.ico", nil, 400, "text/plain", "wrong\n", nil},
		{"page of 416", "GET", file.URL(), []string{"Range: bytes=99-"}, 416, "text/plain", "wrong\n",
			[]string{"Content-Range: bytes */10"}},
		{"page of 405", "POST", file.URL(), []string{"Content-Length: 0"}, 405, "text/plain", "wrong\n",
			[]string{"Allow: GET, HEAD, OPTIONS"}},
		{"page of 414", "GET", "/" + strings.Repeat("x", 17_000), nil, 414, "text/plain", "wrong\n", nil},
		{"HEAD of a page", "HEAD", gone.URL(), nil, 404, "text/html", "", []string{"Content-Length: 17"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, p := range []*e2e.Process{p, byHTTP2} {
				a := p.In(t).Do(tt.method, tt.url, tt.send...)
				require.Equal(t, tt.status, a.StatusCode)
				require.Equal(t, tt.mediaType, a.Header.Get("Content-Type"))
				require.Equal(t, tt.body, string(a.Body))
				requireHeaders(t, a.Header, tt.headers...)
				require.Equal(t, 200, p.In(t).Get(file.URL()).StatusCode)
			}
		})
	}
	page("404.html", "changed")
	code, text := p.AdminPost("/reload", "")
	require.Equal(t, 200, code, text)
	require.Equal(t, "changed", string(p.Get(gone.URL()).Body))
	require.NoError(t, os.Remove(missing))
	code, text = p.AdminPost("/reload", "")
	require.Equal(t, 422, code)
	require.Contains(t, text, "404.html")
	require.Equal(t, "changed", string(p.Get(gone.URL()).Body), "the old configuration stays")
}

// TestFilenameParameters: the first parameter of the list that is present gives the name.
func TestFilenameParameters(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file := s.Normal("jpg", s.Bytes(10))
	for list, cases := range map[string]map[string]string{
		"attname, name": {"attname=a": "a", "name=b": "b", "name=b&attname=a": "a", "filename=c": "", "x=1": ""},
		"filename":      {"filename=a": "a", "attname=b": "", "attname=b&filename=a": "a"},
		"":              {"filename=a": "", "attname=a": ""},
	} {
		p := e2e.Serve(t, s, "[gateway]", "filename_parameters = "+list)
		for query, name := range cases {
			want := ""
			if name != "" {
				want = `attachment; filename="` + name + `"`
			}
			require.Equal(t, want, p.Get(file.URL()+"?"+query).Header.Get("Content-Disposition"), "%s: %s", list, query)
		}
	}
}

// TestDifferencesOrigins: Access-Control-Allow-Origin repeats the origin of the request if
// cors_origin contains it, and the response has Vary: Origin for caches.
func TestDifferencesOrigins(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file, gone := s.Normal("jpg", s.Bytes(10)), s.Missing("jpg", storetest.Created)
	const origin, a, b = "Access-Control-Allow-Origin", "https://a.example", "https://b.example:8443"
	p := e2e.Serve(t, s, "[gateway]", "cors_origin = "+a+", "+b, "cors_expose = X-Own", "cors_headers = Range, X-Asked",
		"cors_max_age = 10m", "[headers]", "Access-Control-Allow-Credentials = true", "Vary = Accept")
	allowed := []string{origin + ": " + a, "Access-Control-Allow-Credentials: true",
		"Access-Control-Expose-Headers: X-Own"}
	preflight := append([]string{"Access-Control-Allow-Headers: Range, X-Asked", "Access-Control-Max-Age: 600",
		"Access-Control-Allow-Methods: GET, HEAD, OPTIONS", "Vary: Origin"}, allowed...)
	none := []string{origin, "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers"}
	differ(t, p, []difference{
		{name: "an origin of the list", url: file.URL(), send: []string{"Origin: " + a}, status: 200,
			headers: append([]string{"Vary: Origin, Accept"}, allowed...)},
		{name: "the other origin", url: file.URL(), send: []string{"Origin: " + b}, status: 200,
			headers: []string{origin + ": " + b}},
		{name: "an origin that is not in the list", url: file.URL(), send: []string{"Origin: https://c.example"},
			status: 200, headers: append([]string{"Vary: Origin, Accept"}, none...)},
		{name: "no origin", url: file.URL(), status: 200, headers: append([]string{"Vary: Origin, Accept"}, none...)},
		{name: "origins on 304", url: file.URL(), send: []string{"Origin: " + a, "If-None-Match: *"}, status: 304,
			headers: append([]string{"Vary: Origin, Accept"}, allowed...)},
		{name: "origins on an error", url: gone.URL(), send: []string{"Origin: " + a}, status: 404,
			headers: append([]string{"Vary: Origin"}, allowed...)},
		{name: "preflight of an origin", method: "OPTIONS", url: file.URL(), send: []string{"Origin: " + a},
			status: 204, headers: preflight, body: []byte{}},
		{name: "preflight of another origin", method: "OPTIONS", url: file.URL(), status: 204,
			send:    []string{"Origin: https://c.example"},
			headers: append([]string{"Vary: Origin", "Access-Control-Allow-Methods"}, none...)},
	})
	one := e2e.Serve(t, s, "[gateway]", "cors_origin = "+a)
	differ(t, one, []difference{
		{name: "no origin, one in the list", url: file.URL(), status: 200,
			headers: []string{origin + ": " + a, "Vary: Origin"}},
		{name: "another origin than the only one", url: file.URL(), send: []string{"Origin: " + b}, status: 200,
			headers: []string{origin, "Vary: Origin"}},
	})
}
