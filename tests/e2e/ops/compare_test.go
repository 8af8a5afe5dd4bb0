package ops

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
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
	require.Equal(t, "done: 5 paths, 5 equal, 0 different, 0 with known differences; left out: 1 repeated, "+
		"1 other lines (line 6: only GET and HEAD are compared, not POST)\n", stdout)

	code, stdout, stderr = e2e.Run(t, append([]string{"compare", "-ranges"}, urls(other)...)...)
	require.Equal(t, 1, code)
	require.Empty(t, stderr)
	path := mp4.URL() + "?attname=a.mp4"
	require.Equal(t, `different: Content-Type of .mp4: old "video/mp4", new "video/own": paths: 1, such as `+path+"\n",
		strings.SplitAfter(stdout, "\n")[0], "one line for GET, HEAD and Range")
	require.Contains(t, stdout, "\ndone: 5 paths, 4 equal, 1 different,")

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

// TestCompareOnTerminal: compare prints colors and a progress bar on a terminal, and a summary when
// Ctrl-C ends it, also while the list comes from a terminal.
func TestCompareOnTerminal(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	p := e2e.Serve(t, s)
	// hangs never responds to the second path.
	hangs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hangs" {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(hangs.Close)
	for name, lines := range map[string][]string{
		"list":     {list(t, f.URL(), "/hangs", "/hangs/too", "/equal", "/equal/too")},
		"terminal": nil,
	} {
		t.Run(name, func(t *testing.T) {
			x := onTerminal(t, nil, append([]string{"compare", hangs.URL, "http://" + p.Addrs[0]}, lines...)...)
			if lines == nil {
				_, err := io.WriteString(x.file, f.URL()+"\n")
				require.NoError(t, err)
			}
			eventually.True(t, func() bool { return strings.Contains(x.text(), "different") })
			if lines != nil {
				eventually.True(t, func() bool { return strings.Contains(x.text(), "(4/5") })
			}
			_, err := io.WriteString(x.file, "\x03") // Ctrl-C
			require.NoError(t, err)
			require.Equal(t, 1, x.end(), x.text())
			require.Contains(t, x.text(), "\x1b[31mdifferent:\x1b[0m GET "+f.URL()+
				": Content-Length: old \"0\", new \"100\"")
			require.Contains(t, x.text(), "not complete: ")
			require.True(t, strings.HasSuffix(x.text(), "gateway: interrupted\r\n"), "%q", x.text())
		})
	}
}

// nginxStatic is a format. Its arguments are the folder of nginx, the address to listen on, and two
// store paths.
const nginxStatic = `	default_type application/octet-stream;
	types { image/jpeg jpg; application/javascript js; }
	access_log %[1]s/access.log combined;
	server {
		listen %[2]s;
		location /group1/M00/ { alias %[3]s/data/; }
		location /group1/M01/ { alias %[4]s/data/; }
	}
`

// startNginx starts nginx for the files of two store paths. The access log is in the folder dir.
func startNginx(t *testing.T, path0, path1 string) (address, dir string) {
	t.Helper()
	dir, address = t.TempDir(), lab.Address(lab.Port())
	p, err := lab.RunNginx(dir, address, quietNginx, fmt.Sprintf(nginxStatic, dir, address, path0, path1))
	if errors.Is(err, lab.ErrMissing) {
		t.Skip("SKIPPED: the gateway is not compared with nginx, which is not installed (apt-get install nginx-light)")
	}
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	return address, dir
}

// TestCompareWithNginx: compare finds that nginx serves the same files with the same statuses and
// bodies, and reports a byte that differs. The list is the access log of nginx.
func TestCompareWithNginx(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	files := []storetest.Object{s.Normal("jpg", s.Bytes(1)), s.Normal("jpg", s.Bytes(5<<20)),
		s.Normal("js", s.Bytes(1000)), s.In(storetest.Group, 1, "jpg", s.Bytes(100_000))}
	for _, f := range files {
		require.NoError(t, os.Chtimes(f.Path, storetest.Created, storetest.Created)) // as FastDFS sets them
	}
	path1 := s.Root(storetest.Group, 1)
	nginx, dir := startNginx(t, s.Root(storetest.Group, 0), path1)
	p := e2e.Serve(t, s)
	missing := s.Missing("jpg", storetest.Created)
	for _, f := range append(files, missing, files[0]) {
		e2e.Fetch(t, http.DefaultClient, "http://"+nginx+f.URL()+"?a=%20")
	}
	noHTTP, err := net.Dial("tcp", nginx)
	require.NoError(t, err)
	_, err = io.WriteString(noHTTP, "\x16\x03\x01\"\r\n\r\n")
	require.NoError(t, err)
	_, _ = io.ReadAll(noHTTP) // until nginx closes the connection
	require.NoError(t, noHTTP.Close())

	args := []string{"compare", "-ranges", "http://" + nginx, "http://" + p.Addrs[0], filepath.Join(dir, "access.log")}
	code, stdout, stderr := e2e.Run(t, args...)
	require.Equal(t, 0, code, stdout+stderr)
	require.Contains(t, stdout, `known: Content-Type of .js: old "application/javascript", new "text/javascript" `+
		"(the registered type): paths: 1, such as "+files[2].URL()+"?a=%20\n")
	require.Contains(t, stdout, "known: the text of an error is the server's own: paths: 1, such as "+missing.URL())
	require.NotContains(t, stdout, "different: ")
	require.Contains(t, stdout, "\ndone: 5 paths, 3 equal, 0 different, 2 with known differences; "+
		"left out: 1 repeated, 1 other lines (line 7: ")

	// The same files in another folder, with one byte of one file changed.
	copied := filepath.Join(t.TempDir(), "path0")
	require.NoError(t, os.CopyFS(copied, os.DirFS(s.Root(storetest.Group, 0))))
	content := append([]byte{}, files[1].Content...)
	content[4<<20] ^= 1
	changed := filepath.Join(copied, strings.TrimPrefix(files[1].Path, s.Root(storetest.Group, 0)))
	require.NoError(t, os.WriteFile(changed, content, 0o600))
	require.NoError(t, os.Chtimes(changed, storetest.Created, storetest.Created))
	nginx, _ = startNginx(t, copied, path1)
	code, stdout, stderr = e2e.Run(t, "compare", "-ranges", "http://"+nginx, "http://"+p.Addrs[0],
		list(t, files[1].ID.String(), files[3].ID.String()))
	require.Equal(t, 1, code, stdout+stderr)
	require.Contains(t, stdout, "different: GET "+files[1].URL()+`: body: old "5242880 bytes, SHA-256 `)
	require.Contains(t, stdout, "\ndone: 2 paths, 1 equal, 1 different,")
}
