package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestHardening: gateway check finds no problem in a configuration with all lines of
// docs/hardening.md, if the files that they name exist.
func TestHardening(t *testing.T) {
	t.Parallel()
	needGateway(t)
	text := read(t, "docs/hardening.md")
	blocks := regexp.MustCompile("(?s)```ini\n(.*?)```").FindAllStringSubmatch(text, -1)
	require.Len(t, blocks, 13, "one for each setting")
	require.Len(t, regexp.MustCompile(`(?m)^## \d+\. `).FindAllString(text, -1), 12)
	var lines strings.Builder
	for _, b := range blocks {
		fmt.Fprintf(&lines, "[]\n%s", b[1]) // [] is the global section
	}

	dir := secrets(t)
	config := strings.NewReplacer("/etc/fdfs", dir, "/var/log/fastdfs-gateway", dir, "/var/cache/fastdfs-gateway",
		dir+"/cache", "user = fdfs", "user = nobody",
		"655672aa2f1d8bdb30c8a41b743d983beb7764cd8350b9fed3cf81c9d3bd1b9b", "7f3a9c51e08b4d2690b1e5d7c8f2a346").
		Replace(lines.String())
	code, stdout, stderr := e2e.Run(t, "check", "-c", e2e.WriteConfig(t, storetest.New(t).Config()+"\n"+config))
	require.Equal(t, 0, code, stdout+stderr)
	require.Contains(t, stdout, "no problems", stdout)
}

// secrets returns a folder with certificates, keys and secrets under the names of the documents.
func secrets(t *testing.T) string {
	t.Helper()
	dir, a := t.TempDir(), redistest.NewAuthority(t)
	cert, key := a.Issue("gateway.example")
	for name, from := range map[string]string{"tls.crt": cert, "tls.key": key, "redis.crt": cert, "redis.key": key,
		"redis-ca.crt": a.File} {
		data, err := os.ReadFile(from)
		require.NoError(t, err)
		if name == "tls.crt" { // a whole chain
			issuer, err := os.ReadFile(a.File)
			require.NoError(t, err)
			data = append(data, issuer...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	for _, name := range []string{"admin.token", "redis.password"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("5c8d1f0b7e3a49c2a6d4e8f1\n"), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "cache"), 0o700))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // the account of the gateway writes there
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.Chmod(filepath.Join(dir, "cache"), 0o777))
	return dir
}

// TestProductionConfiguration: gateway check finds no problem in the configuration that
// docs/operations.md and its Chinese page show, if the files that it names exist.
func TestProductionConfiguration(t *testing.T) {
	t.Parallel()
	needGateway(t)
	block := regexp.MustCompile("(?s)```ini\n(.*?)```")
	shown := block.FindStringSubmatch(section(t, read(t, "docs/operations.md"), "A production configuration"))
	require.NotNil(t, shown)
	require.Contains(t, read(t, "docs/zh/operations.md"), shown[0])
	dir := secrets(t)
	module := e2e.WriteConfig(t,
		storetest.New(t).Config("tracker_server = 10.0.0.1:22122", "[gateway]", "user = nobody"))
	config := strings.NewReplacer("/etc/fdfs/mod_fastdfs.conf", module, "/etc/fastdfs-gateway", dir,
		"/var/log/fastdfs-gateway", dir, "/var/cache/fastdfs-gateway", dir+"/cache",
		"disk_max = 100GB", "disk_max = 100MB").Replace(shown[1])
	code, stdout, stderr := e2e.Run(t, "check", "-c", e2e.WriteConfig(t, config))
	require.Equal(t, 0, code, stdout+stderr)
	require.Contains(t, stdout, "no problems", stdout)
}

// TestHardeningRedisRights: docs/hardening.md has the rights with which the tests of Redis run.
func TestHardeningRedisRights(t *testing.T) {
	t.Parallel()
	rights := regexp.MustCompile(`(?m)^    ACL SETUSER gateway on >PASSWORD ~fdfs:\* &fdfs:\* (.*)$`).
		FindStringSubmatch(read(t, "docs/hardening.md"))
	require.NotNil(t, rights)
	list := regexp.MustCompile(`(?s)var redisRights = \[\]any\{(.*?)\}`).
		FindStringSubmatch(read(t, "internal/fleet/redis_tls_test.go"))
	require.NotNil(t, list)
	require.Equal(t, rights[1],
		strings.Join(strings.Fields(strings.NewReplacer(`"`, "", ",", " ").Replace(list[1])), " "))
}

// TestDependencies: docs/dependencies.md has one line for each module that a go.mod names as a
// direct dependency, and no other lines. Modules that only tests/all uses are not in the go.mod of
// the program.
func TestDependencies(t *testing.T) {
	t.Parallel()
	program, others := direct(t, "go.mod"), direct(t, "tests/all/go.mod")
	var listed, only []string
	row := regexp.MustCompile("(?m)^\\| `(\\S+)` \\| ([^|]+) \\| ([^|]+) \\|$")
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/dependencies.md"), -1) {
		for _, cell := range m[2:] {
			require.NotEmpty(t, strings.TrimSpace(cell), m[1])
		}
		if m[2] == "`tests/all`" {
			only = append(only, m[1])
		} else {
			listed = append(listed, m[1])
		}
	}
	require.ElementsMatch(t, program, listed)
	isProgram := func(module string) bool { return module == "fastdfs-gateway" || slices.Contains(program, module) }
	require.ElementsMatch(t, slices.DeleteFunc(others, isProgram), only)
}

// direct returns the modules of a go.mod that its module imports directly.
func direct(t *testing.T, file string) (modules []string) {
	t.Helper()
	// lines of indirect modules have a comment
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(read(t, file), -1) {
		modules = append(modules, m[1])
	}
	require.NotEmpty(t, modules)
	return modules
}
