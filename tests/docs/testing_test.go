package docs

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTestingDocument: each rule of docs/testing.md names tests, and each of them exists.
func TestTestingDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/testing.md")
	require.NoError(t, err)
	_, rules, found := strings.Cut(string(text), "\n## Rules and the tests that see them broken\n")
	require.True(t, found)
	rows := 0
	for line := range strings.Lines(rules) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| rule |") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		require.Len(t, cells, 3, line)
		names := namedTest.FindAllStringSubmatch(cells[2], -1)
		require.Len(t, names, strings.Count(cells[2], "`")/2, "each is `folder.TestName`: %s", cells[2])
		require.NotEmpty(t, names, line)
		for _, name := range names {
			requireTest(t, name[1], name[2])
		}
	}
	require.GreaterOrEqual(t, rows, 100)
}
