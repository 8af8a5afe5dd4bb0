package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// namedTest is a test as docs/reliability.md names it: `folder.TestName`.
var namedTest = regexp.MustCompile("`([a-z0-9/]+)\\.(Test[A-Za-z0-9]+)`")

// TestReliabilityDocument: each fault and each stand-in of docs/reliability.md names tests, and
// each of them exists.
func TestReliabilityDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reliability.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n## Stand-ins\n")
	require.True(t, found)
	standIns, _, _ := strings.Cut(rest, "\n## ")
	names := namedTest.FindAllStringSubmatch(standIns, -1)
	require.GreaterOrEqual(t, len(names), 20)
	for _, name := range names {
		requireTest(t, name[1], name[2])
	}
	_, rest, found = strings.Cut(string(text), "\n## Faults\n")
	require.True(t, found)
	table, _, _ := strings.Cut(rest, "\n## ")
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || cells[0] == "| fault" {
			continue
		}
		rows++
		require.Len(t, cells, 5, line)
		names := namedTest.FindAllStringSubmatch(cells[2], -1)
		require.Len(t, names, strings.Count(cells[2], "`")/2, "each is `folder.TestName`: %s", cells[2])
		require.NotEmpty(t, names, line)
		for _, name := range names {
			requireTest(t, name[1], name[2])
		}
	}
	require.GreaterOrEqual(t, rows, 20)
}

func requireTest(t *testing.T, folder, name string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {") {
			return
		}
	}
	t.Errorf("%s has no test %s", folder, name)
}
