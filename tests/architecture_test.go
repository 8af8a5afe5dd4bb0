package tests

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// layers are those of docs/architecture.md: a package imports only from layers below its own.
var layers = map[string]int{
	"cmd/gateway":                    6,
	"packaging/mkdist":               6,
	"internal/app":                   5,
	"internal/gateway":               4,
	"internal/admin":                 4,
	"internal/fleet":                 3,
	"internal/origin":                3,
	"cachelock/locktest":             3, // a suite for tests
	"storage":                        2,
	"internal/demo":                  3,
	"internal/demo/storewriter":      2,
	"internal/compare":               2,
	"internal/cache":                 2,
	"cachelock":                      2,
	"tracker":                        2,
	"internal/fdfs":                  1,
	"internal/process/listen":        1,
	"internal/process/upgrade":       2,
	"internal/fdfs/backoff":          0,
	"internal/config":                2,
	"internal/httpserver/httprange":  1,
	"internal/httpserver/disconnect": 1,
	"internal/httpserver/guard":      1,
	"internal/httpserver/sendfile":   1,
	"internal/process/logfile":       1,
	"internal/process/sandbox":       1,
	"internal/fdfs/checksum":         1,
	"internal/content/arena":         0,
	"internal/content":               0,
	"internal/testing/contenttest":   1, // for tests
	"internal/process/panics":        0,
	"internal/admin/status":          1,
	"internal/process/sys":           0,
	"internal/help":                  0,
	"storage/client/stall":           1,
	"internal/cache/tier":            1,
	"internal/testing/cachetest":     2, // a suite for tests
	"internal/testing/redistest":     1, // servers for tests
	"internal/testing/eventually":    0, // for tests
	"antisteal":                      1,
	"lua":                            1,
}

// owners are the only packages that may know a library or package, and the packages below it.
var owners = map[string][]string{
	"github.com/valyala/fasthttp":     {"internal/gateway"},
	"fastdfs-gateway/internal/config": {"cmd/gateway", "internal/app"},
	"github.com/landlock-lsm":         {"internal/process/sandbox"},
	"gopkg.in/ini.v1":                 {"internal/config"},
	"github.com/redis/go-redis":       {"cachelock", "internal/fleet", "internal/testing/redistest",
		"cachelock/locktest"},
}

// TestLayers holds the imports of every package to the table.
func TestLayers(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`,
		"fastdfs-gateway/...").Output()
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[0], "fastdfs-gateway/")
		if strings.HasPrefix(name, "tests") {
			continue
		}
		layer, known := layers[name]
		require.True(t, known, "%s is in no layer: put it into docs/architecture.md and this test", name)
		seen[name] = true
		for _, imported := range fields[1:] {
			if below, ours := strings.CutPrefix(imported, "fastdfs-gateway/"); ours {
				require.Less(t, layers[below], layer, "%s imports %s, which is not below it", name, below)
			}
			for owned, allowed := range owners {
				if strings.HasPrefix(imported+"/", owned+"/") {
					require.Contains(t, allowed, name, "%s must not know %s", name, imported)
				}
			}
		}
	}
	require.Len(t, seen, len(layers), "the table names packages that are not there")
}
