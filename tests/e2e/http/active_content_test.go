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

// TestDifferencesActiveContent: scripts in uploaded pages and pictures do not run with the origin
// of the site, unless active_content = inline.
func TestDifferencesActiveContent(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	page, picture, text := s.Normal("html", s.Bytes(600)), s.Trunk("svg", s.Bytes(100)), s.Normal("txt", s.Bytes(100))
	own := s.Normal("xht", s.Bytes(100))
	const policy, disposition = "Content-Security-Policy", "Content-Disposition"
	for mode, cases := range map[string][]difference{
		"sandbox": {
			{name: "page in a sandbox", url: page.URL(), status: 200,
				headers: []string{policy + ": sandbox", disposition, "X-Content-Type-Options: nosniff"}},
			{name: "picture with scripts", url: picture.URL(), status: 200, headers: []string{policy + ": sandbox"}},
			{name: "type of [types]", url: own.URL(), status: 200, headers: []string{policy + ": sandbox"}},
			{name: "part of a page", url: page.URL(), send: []string{"Range: bytes=0-9"}, status: 206,
				headers: []string{policy + ": sandbox"}},
			{name: "parts of a page", url: page.URL(), send: []string{"Range: bytes=0-9,20-29"}, status: 206,
				headers: []string{policy + ": sandbox"}},
			{name: "HEAD of a page", method: http.MethodHead, url: page.URL(), status: 200,
				headers: []string{policy + ": sandbox"}},
			{name: "page with a name", url: page.URL() + "?filename=a.html", status: 200,
				headers: []string{policy + ": sandbox", disposition + `: attachment; filename="a.html"`}},
			{name: "text is not active", url: text.URL(), status: 200, headers: []string{policy, disposition}},
		},
		"attachment": {
			{name: "page to be saved", url: page.URL(), status: 200,
				headers: []string{disposition + ": attachment", policy}},
			{name: "page to be saved under a name", url: page.URL() + "?filename=a.html", status: 200,
				headers: []string{disposition + `: attachment; filename="a.html"`}},
			{name: "text is shown", url: text.URL(), status: 200, headers: []string{policy, disposition}},
		},
		"inline": {{name: "page like any file", url: page.URL(), status: 200, headers: []string{policy, disposition}}},
	} {
		t.Run(mode, func(t *testing.T) {
			lines := []string{"[gateway]"}
			if mode != "sandbox" { // the default
				lines = append(lines, "active_content = "+mode)
			}
			differ(t, e2e.Serve(t, s, append(lines, "[types]", "xht = application/xhtml+xml; charset=utf-8")...), cases)
		})
	}
}

// TestTokensAreMasked: no log contains a token, whatever the form of the request, unless log_tokens
// = true.
func TestTokensAreMasked(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	const token = "0123456789abcdef0123456789abcdef"
	for name, tt := range map[string]struct {
		format string
		keys   []string
		shown  bool
	}{
		"combined": {"combined", nil, false},
		"json":     {"json", nil, false},
		"in clear": {"combined", []string{"log_tokens = true"}, true},
		"and json": {"json", []string{"log_tokens = true"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "access.log")
			p := e2e.Serve(t, s, append([]string{"log_level = debug", "[gateway]", "access_log = " + path,
				"access_log_format = " + tt.format}, tt.keys...)...)
			p.Get(f.URL()+"?token="+token+"&ts=1&filename=x", "Referer: http://page.test/?a=b&token="+token)
			p.Get(f.URL() + "?%74oken=" + token)
			// no Host: rejected before it is a request
			p.Raw("GET " + f.URL() + "?ts=1&token=" + token + " HTTP/1.1\r\n\r\n")
			require.NoError(t, os.Truncate(f.Path, 50)) // a response that the gateway has to log
			p.Get(f.URL() + "?token=" + token)
			require.NoError(t, os.WriteFile(f.Path, f.Content, 0o600))
			lines := strings.Join(e2e.ReadLines(t, path, 4), "\n")
			p.Shutdown()
			if tt.shown {
				require.Equal(t, 5, strings.Count(lines, token), lines)
				return
			}
			require.NotContains(t, lines, token[:8])
			require.NotContains(t, p.LogText(), token[:8])
			require.Equal(t, 5, strings.Count(lines, "oken=***"), lines)
			require.Contains(t, lines, "?token=***&ts=1&filename=x")
		})
	}
}
