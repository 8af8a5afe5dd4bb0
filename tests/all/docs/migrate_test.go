package docs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/docs"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// migrated is the nginx.conf of TestMigrateDocument. nginx without the module serves plain files by
// alias. Its arguments: a folder, the user, listen, a store path.
const migrated = `%[2]s
error_log %[1]s/error.log;
pid %[1]s/nginx.pid;
events {}
http {
	access_log %[1]s/access.log combined;
	default_type application/octet-stream;
	types { image/jpeg jpg; }
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	keepalive_timeout 20;
	server {
		listen %[3]s;
		location ~* ^/group1/M00/(.*\.jpg)$ {
			alias %[4]s/data/$1;
			valid_referers none blocked *.example.com;
			if ($invalid_referer) { return 403; }
			expires 1d;
		}
		location /group1/M00/ { alias %[4]s/data/; }
	}
}
`

// TestMigrateDocument: the commands of docs/migrate-from-nginx.md succeed in their order with a
// real nginx, each request gets the expected status, and nginx serves again at the end.
func TestMigrateDocument(t *testing.T) {
	t.Parallel()
	if _, err := lab.LookUp("nginx"); errors.Is(err, lab.ErrMissing) {
		t.Skip("SKIPPED: the commands of docs/migrate-from-nginx.md are not run: nginx is not installed " +
			"(apt-get install nginx-light)")
	}
	dir, s := t.TempDir(), storetest.New(t)
	files := []storetest.Object{s.Normal("jpg", s.Bytes(70_000)), s.Normal("bin", s.Bytes(1000))}
	for _, f := range files {
		require.NoError(t, os.Chtimes(f.Path, storetest.Created, storetest.Created)) // as FastDFS leaves it
	}
	listen, beside, user := lab.Address(lab.Port()), lab.Address(lab.Port()), ""
	if os.Getuid() == 0 {
		user = "user root;" // the store of the test has no rights for other accounts
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	conf := write("nginx.conf", fmt.Sprintf(migrated, dir, user, listen, s.Root(storetest.Group, 0)))
	write("mod_fastdfs.conf", s.Config("[gateway]", "admin_listen = "+lab.Address(lab.Port()),
		"allow_sources = 192.0.2.1"))
	write("mime.types", storetest.Types)
	nginx := "nginx -p " + dir + " -c " + conf
	names := strings.NewReplacer("/etc/nginx/nginx.conf", conf, "/etc/fdfs", dir, "/run/nginx.pid",
		filepath.Join(dir, "nginx.pid"), "/var/log/nginx", dir, "localhost:8888", listen, "127.0.0.1:18080", beside,
		"FILE_ID", files[0].ID.String(), "gateway migrate", e2e.Binary+" migrate", "gateway check", e2e.Binary+" check",
		"gateway -c", e2e.Binary+" -c", "gateway ready", e2e.Binary+" ready", "gateway compare", e2e.Binary+" compare",
		"nginx -s", nginx+" -s")
	run := func(line string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		out, err := os.Create(filepath.Join(dir, "out")) // a file: gateways in the background keep it open
		require.NoError(t, err)
		defer out.Close()
		cmd := exec.CommandContext(ctx, "sh", "-c", line)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
		err = cmd.Run()
		text, readErr := os.ReadFile(out.Name())
		require.NoError(t, readErr)
		return string(text), err
	}
	t.Cleanup(func() {
		_, _ = run("kill $(cat beside.pid gateway.pid); " + nginx + " -s stop")
	})
	_, err := run(nginx)
	require.NoError(t, err)
	for _, f := range files { // fills the access log
		eventually.True(t, func() bool { return status(f, listen) == http.StatusOK })
	}
	text, err := os.ReadFile("../../../docs/migrate-from-nginx.md")
	require.NoError(t, err)
	all := docs.Commands(string(text))
	require.Greater(t, len(all), 15)
	for _, c := range all {
		line := names.Replace(c.Text)
		if c.Text == "nginx" {
			line = nginx
		}
		out, err := run(line)
		if strings.Contains(line, " migrate ") { // 3: no translation of user root and the types block
			code := 0
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				code, err = exit.ExitCode(), nil
			}
			require.Contains(t, []int{0, 3}, code, out)
		}
		require.NoError(t, err, "docs/migrate-from-nginx.md:%d: %s\n%s", c.Line, line, out)
		if strings.HasPrefix(c.Text, "curl") {
			want := "200"
			if strings.Contains(c.Text, "Referer") {
				want = "403"
			}
			require.Equal(t, want, strings.TrimSpace(out), "line %d: %s", c.Line, line)
		}
	}
	eventually.True(t, func() bool { return status(files[0], listen) == http.StatusOK })
	pid, err := os.ReadFile(filepath.Join(dir, "nginx.pid"))
	require.NoError(t, err)
	require.NotEmpty(t, pid, "nginx serves again")
}

// status returns the status of a GET; 0 without a listener.
func status(f storetest.Object, address string) int {
	resp, err := http.Get("http://" + address + f.URL())
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
