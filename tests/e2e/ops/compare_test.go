package ops

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// list writes lines to a file and returns its path.
func list(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "list")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return path
}

// logged returns a line of an access log in the combined format.
func logged(request string) string {
	return `127.0.0.1 - - [22/Nov/2026:12:00:00 +0000] "` + request + `" 200 1000 "-" "-"`
}

// TestCompare: compare finds no difference between two gateways with one configuration, and reports
// a type that another configuration changes.
func TestCompare(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	jpg, mp4, missing := s.Normal("jpg", s.Bytes(300_000)), s.Trunk("mp4", s.Bytes(1000)), s.Missing("jpg", time.Now())
	page := s.Normal("html", []byte{})
	old, same := e2e.Serve(t, s), e2e.Serve(t, s)
	other := e2e.Serve(t, s, "[gateway]", "[types]", "mp4 = video/own")
	lines := list(t, jpg.ID.String(), missing.ID.String(), page.URL(),
		logged("GET "+mp4.URL()+"?attname=a.mp4 HTTP/1.1"),
		logged("GET "+jpg.URL()+" HTTP/1.1"), logged("POST "+jpg.URL()+" HTTP/1.1"), "/no/file?id=%2F..%zz")
	urls := func(p *e2e.Process) []string {
		return []string{"http://" + old.Addrs[0], "http://" + p.Addrs[0], lines}
	}

	code, stdout, stderr := e2e.Run(t, append([]string{"compare", "-ranges"}, urls(same)...)...)
	require.Equal(t, 0, code, stdout+stderr)
	require.Empty(t, stderr)
	require.Equal(t, "done: 5 paths, 5 equal, 0 different; left out: 1 repeated, "+
		"1 other lines (line 6: only GET and HEAD are compared, not POST)\n", stdout)

	code, stdout, stderr = e2e.Run(t, append([]string{"compare", "-ranges"}, urls(other)...)...)
	require.Equal(t, 1, code)
	require.Empty(t, stderr)
	path := mp4.URL() + "?attname=a.mp4"
	require.Equal(t, `different: Content-Type of .mp4: old "video/mp4", new "video/own": paths: 1, such as `+path+"\n",
		strings.SplitAfter(stdout, "\n")[0], "one line for GET, HEAD and Range")
	require.Contains(t, stdout, "\ndone: 5 paths, 4 equal, 1 different;")

	code, stdout, stderr = e2e.Run(t, append([]string{"compare", "-json"}, urls(other)...)...)
	require.Equal(t, 1, code)
	require.Empty(t, stderr)
	require.Equal(t, []map[string]any{
		{"complete": true, "paths": 5.0, "equal": 4.0, "different": 1.0, "known": 0.0, "repeated": 1.0,
			"unreadable": 1.0, "sums": []any{map[string]any{"field": "Content-Type", "extension": ".mp4",
				"old": "video/mp4", "new": "video/own", "paths": 1.0, "example": path}}},
	}, objects(t, stdout))

	code, stdout, _ = e2e.Run(t, append([]string{"compare", "-sample", "2"}, urls(same)...)...)
	require.Equal(t, 0, code)
	require.Contains(t, stdout, "done: 2 paths, 2 equal,")
}
