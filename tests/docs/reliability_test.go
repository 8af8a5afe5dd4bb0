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
	require.GreaterOrEqual(t, requireNamedTests(t, string(text), "Faults", "fault", 5), 20)
}

// TestTestingDocument: each rule of docs/testing.md names tests, and each of them exists.
func TestTestingDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/testing.md")
	require.NoError(t, err)
	require.GreaterOrEqual(t,
		requireNamedTests(t, string(text), "Rules and the tests that see them broken", "rule", 3), 100)
}

// requireNamedTests requires that each row of the table in a section has that many cells, and in
// the third one only names of tests that exist, at least one. It returns the number of rows. first
// is the head of the first column.
func requireNamedTests(t *testing.T, text, section, first string, columns int) (rows int) {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n## "+section+"\n")
	require.True(t, found)
	table, _, _ := strings.Cut(rest, "\n## ")
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") ||
			strings.HasPrefix(line, "| "+first+" |") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		require.Len(t, cells, columns, line)
		names := namedTest.FindAllStringSubmatch(cells[2], -1)
		require.Len(t, names, strings.Count(cells[2], "`")/2, "each is `folder.TestName`: %s", cells[2])
		require.NotEmpty(t, names, line)
		for _, name := range names {
			requireTest(t, name[1], name[2])
		}
	}
	return rows
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
