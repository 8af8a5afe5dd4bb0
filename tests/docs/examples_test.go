package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestExamples: gateway check warns of nothing in the configurations of the packages, except of
// values that an example leaves to its reader.
func TestExamples(t *testing.T) {
	t.Parallel()
	needGateway(t)
	files, err := filepath.Glob("../../packaging/examples/*.conf")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range append(files, "../../packaging/gateway.conf") {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // the account of the gateway writes its log there
		require.NoError(t, os.Chmod(dir, 0o777))
		conf := filepath.Join(dir, "gateway.conf")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "redis.password"), []byte("5c8d1f0b7e3a49c2\n"), 0o600))
		module := e2e.WriteConfig(t, storetest.New(t).Config("log_filename = /nowhere/mod_fastdfs.log"))
		moved := strings.NewReplacer("/etc/fdfs/mod_fastdfs.conf", module, "/etc/fastdfs-gateway", dir,
			"/var/log/fastdfs-gateway", dir, "/var/cache/fastdfs-gateway", filepath.Join(dir, "cache"),
			"[gateway]\n", "[gateway]\nuser = nobody\n",
			"655672aa2f1d8bdb30c8a41b743d983beb7764cd8350b9fed3cf81c9d3bd1b9b",
			"7f3a9c51e08b4d2690b1e5d7c8f2a346").Replace(string(text))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "cache"), 0o700))
		require.NoError(t, os.Chmod(filepath.Join(dir, "cache"), 0o777)) // for the account of the gateway
		require.NoError(t, os.WriteFile(conf, []byte(moved), 0o600))
		code, stdout, stderr := e2e.Run(t, "check", "-c", conf)
		require.Equal(t, 0, code, "%s\n%s%s", file, stdout, stderr)
		for line := range strings.Lines(stdout) {
			known := !strings.Contains(line, "warning:") ||
				strings.Contains(line, "allow_sources name the storages") || // the store of the test has no tracker
				strings.Contains(line, "in the cache, for disk_max") || // the disk of the test
				strings.Contains(line, "memory_max and the memory of") ||
				strings.Contains(line, "Redis is on another host, and there is no TLS")
			require.True(t, known, "%s: %s", file, line)
		}
	}
}
