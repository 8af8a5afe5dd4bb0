package style

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rows of docs/architecture.md: a package in its layer, and an import with the packages that may
// have it.
var (
	layerRow = regexp.MustCompile("(?m)^\\| (\\d) \\| `([^`]+)` \\|")
	ownerRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ((?:`[^`]+` )+)\\|$")
)

// readLayers returns the layer of each package, and for each import with owners the packages that
// may have it.
func readLayers(t *testing.T) (layers map[string]int, owners map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/architecture.md")
	require.NoError(t, err)
	layers, owners = map[string]int{}, map[string][]string{}
	for _, row := range layerRow.FindAllStringSubmatch(string(text), -1) {
		require.NotContains(t, layers, row[2], "two rows")
		layers[row[2]], err = strconv.Atoi(row[1])
		require.NoError(t, err)
	}
	for _, row := range ownerRow.FindAllStringSubmatch(string(text), -1) {
		for _, owner := range strings.Fields(row[2]) {
			owners[row[1]] = append(owners[row[1]], strings.Trim(owner, "`"))
		}
	}
	require.NotEmpty(t, layers)
	require.NotEmpty(t, owners)
	return layers, owners
}

// TestLayers: the imports of every package follow the tables of docs/architecture.md.
func TestLayers(t *testing.T) {
	t.Parallel()
	layers, owners := readLayers(t)
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
		require.True(t, known, "%s is in no layer: put it into docs/architecture.md", name)
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
