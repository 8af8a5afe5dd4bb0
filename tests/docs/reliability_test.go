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

// TestReliabilityDocument: each fault of docs/reliability.md names tests, and each of them exists.
func TestReliabilityDocument(t *testing.T) {
	t.Parallel()
	faults := section(t, read(t, "docs/reliability.md"), "Faults")
	require.GreaterOrEqual(t, requireNamedTests(t, faults, 3), 30)
}

// TestMutants: each rule of tests/mutants.md names tests, and each of them exists.
func TestMutants(t *testing.T) {
	t.Parallel()
	require.GreaterOrEqual(t, requireNamedTests(t, read(t, "tests/mutants.md"), 3), 100)
}

// section returns a section of a document, which has a heading of the second level.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n## "+heading+"\n")
	require.True(t, found)
	text, _, _ = strings.Cut(rest, "\n## ")
	return text
}

// requireNamedTests requires that the third cell of each row of the tables in a text has at least
// one name, and only names of tests that exist. It returns the number of rows.
func requireNamedTests(t *testing.T, text string, columns int) int {
	t.Helper()
	rows := tableRows(t, text, columns)
	for _, cells := range rows {
		names := namedTest.FindAllStringSubmatch(cells[2], -1)
		require.Len(t, names, strings.Count(cells[2], "`")/2, "each is `folder.TestName`: %s", cells[2])
		require.NotEmpty(t, names, cells[0])
		for _, name := range names {
			requireTest(t, name[1], name[2])
		}
	}
	return len(rows)
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
