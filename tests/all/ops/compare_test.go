package ops

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

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
	require.Contains(t, stdout, "\ndone: 5 paths, 5 equal (2 of them with known differences), 0 different; "+
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
	list := filepath.Join(dir, "list")
	require.NoError(t, os.WriteFile(list, []byte(files[1].ID.String()+"\n"+files[3].ID.String()+"\n"), 0o600))
	code, stdout, stderr = e2e.Run(t, "compare", "-ranges", "http://"+nginx, "http://"+p.Addrs[0],
		list)
	require.Equal(t, 1, code, stdout+stderr)
	require.Contains(t, stdout, "different: GET "+files[1].URL()+`: body: old "5242880 bytes, SHA-256 `)
	require.Contains(t, stdout, "\ndone: 2 paths, 1 equal, 1 different;")
}
