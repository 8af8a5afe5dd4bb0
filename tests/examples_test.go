package tests

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestExamples: gateway check has nothing to say against the configurations of the packages, but
// what the examples leave to their reader.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../packaging/examples/*.conf")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range append(files, "../packaging/gateway.conf") {
		dir := t.TempDir()
		conf := filepath.Join(dir, "gateway.conf")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "redis.password"), []byte("5c8d1f0b7e3a49c2\n"), 0o600))
		module := writeConfig(t, storetest.New(t).Config("log_filename = /nowhere/mod_fastdfs.log"))
		moved := strings.NewReplacer("/etc/fdfs/mod_fastdfs.conf", module, "/etc/fastdfs-gateway", dir,
			"/var/log/fastdfs-gateway", dir, "/var/cache/fastdfs-gateway", filepath.Join(dir, "cache"),
			"[gateway]\n", "[gateway]\nuser = nobody\n").Replace(string(text))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "cache"), 0o700))
		require.NoError(t, os.WriteFile(conf, []byte(moved), 0o600))
		code, stdout, stderr := run(t, "check", "-c", conf)
		require.Equal(t, 0, code, "%s\n%s%s", file, stdout, stderr)
		for line := range strings.Lines(stdout) {
			known := !strings.Contains(line, "warning:") ||
				strings.Contains(line, "allow_sources name the storages") || // the store of the test has no tracker
				strings.Contains(line, "Redis is on another host, and there is no TLS")
			require.True(t, known, "%s: %s", file, line)
		}
	}
}

// TestReady: gateway ready says what /readyz says, by its exit code too.
func TestReady(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p := serve(t, s)
	for flag, want := range map[string]string{"-json=false": "ready\n", "-json": "{\"ready\":true}\n"} {
		code, stdout, _ := run(t, "ready", "-admin", p.admin, flag)
		require.Equal(t, 0, code)
		require.Equal(t, want, stdout)
	}
	require.NoError(t, os.Rename(s.Root(storetest.Group, 0), s.Root(storetest.Group, 0)+".away"))
	code, stdout, stderr := run(t, "ready", "-json", "-admin", p.admin)
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, http.StatusText(http.StatusServiceUnavailable)+": ")
	p.stop()
	code, _, stderr = run(t, "ready", "-admin", p.admin)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "cannot reach the gateway")
}
