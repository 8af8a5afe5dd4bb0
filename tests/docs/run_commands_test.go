package docs

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestDocumentedCommands: the command lines of the documents succeed while a gateway runs, with the
// names of the documents replaced by those of the test. tests/all/packages runs docs/install.md.
// exceptions has the reason for each command that is not run.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	needGateway(t)
	dir, s := t.TempDir(), storetest.New(t)
	file := s.Normal("jpg", s.Bytes(1000))
	listen, admin := lab.Address(lab.Port()), lab.Address(lab.Port())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ids.txt"), []byte(file.ID.String()+"\n"), 0o600))
	log := `127.0.0.1 - - [22/Nov/2026:12:00:00 +0000] "GET ` + file.URL() + ` HTTP/1.1" 200 1000 "-" "-"` + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "access.log"), []byte(log), 0o600))
	at := func(listen, admin string) string {
		return e2e.WriteConfig(t, s.Config("http.anti_steal.secret_key = 5c8d1f0b7e3a49c2", "[gateway]",
			"listen = "+listen, "admin_listen = "+admin, "allow_sources = 192.0.2.1"))
	}
	nginx := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(nginx,
		[]byte("server { listen 8888; location /group1/M00 { ngx_fastdfs_module; } }"),
		0o600))
	conf := at(listen, admin)
	e2e.ServeConfig(t, conf)
	other := at(lab.Address(lab.Port()), lab.Address(lab.Port()))
	id := file.ID.String()
	names := strings.NewReplacer("/etc/fdfs/mod_fastdfs.conf", conf, "/etc/nginx/nginx.conf", nginx, "URL_OR_ID", id,
		" FILE", " "+conf,
		"group1/M00/00/01/fwAAAWsCs5WAAB7vAACw72Tj3gY919.jpg", id,
		"localhost:8888", listen, "localhost:8080", listen, "/tmp/demo-store", filepath.Join(dir, "demo"),
		"bin/gateway", e2e.Binary)
	for _, document := range []string{"README.md", "docs/operations.md", "docs/symptoms.md", "docs/cli.md"} {
		all := Commands(read(t, document))
		require.NotEmpty(t, all, document)
		var lines []string
		for _, c := range all {
			lines = append(lines, c.Text)
			if How(document, c.Text) != Here {
				continue
			}
			line := names.Replace(c.Text)
			if rest, ok := strings.CutPrefix(line, "gateway "); ok {
				line = e2e.Binary + " " + rest
			}
			words := strings.Fields(line)
			require.Equal(t, e2e.Binary, words[0], "%s:%d: cannot be run: %s", document, c.Line, c.Text)
			switch words[1] {
			case "-c", "serve":
				e2e.StartCommand(t, other, exec.Command(e2e.Binary, "serve", "-c", other)).Shutdown()
				continue
			case "demo":
				line += " -listen 127.0.0.1:0 -token-listen 127.0.0.1:0 -admin-listen 127.0.0.1:0"
				runDemo(t, line)
				continue
			case "purge", "prefetch":
				line = strings.Replace(line, words[1], words[1]+" -admin "+admin, 1)
			}
			run := exec.Command("sh", "-c", line)
			run.Dir = dir
			out, err := run.CombinedOutput()
			require.NoError(t, err, "%s:%d: %s\n%s", document, c.Line, line, out)
		}
		for _, excepted := range Excepted(document) {
			require.Contains(t, lines, excepted, "%s does not have it any more", document)
		}
	}
}

// runDemo runs a command line of gateway demo until all is served.
func runDemo(t *testing.T, line string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "exec "+line)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "Stop with Ctrl-C."; {
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_, err = io.Copy(io.Discard, out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
}
