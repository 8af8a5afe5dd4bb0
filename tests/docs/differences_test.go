package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	inCode   = regexp.MustCompile("`([^`]+)`")
)

// TestDocumentedDifferences: each row of docs/differences.md names tests and cases that exist, and
// the table has every test whose name begins with TestDifferences.
func TestDocumentedDifferences(t *testing.T) {
	t.Parallel()
	source := testSource(t)
	written, documented := map[string]bool{}, map[string]bool{}
	for _, m := range testFunc.FindAllStringSubmatch(source, -1) {
		written[m[1]] = true
	}
	rows := tableRows(t, read(t, "docs/differences.md"), 4)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		names := inCode.FindAllStringSubmatch(row[3], -1)
		require.NotEmpty(t, names, "no test pins: %s", row[0])
		require.Contains(t, names[0][1], "Test", "a case without its test: %s", row[0])
		for _, m := range names {
			name := m[1]
			if other := namedTest.FindStringSubmatch(m[0]); other != nil {
				requireTest(t, other[1], other[2])
			} else if strings.HasPrefix(name, "Test") {
				require.True(t, written[name], "no test has the name %s", name)
				documented[name] = true
			} else {
				require.True(t, strings.Contains(source, strconv.Quote(name)), "no test has the case %q", name)
			}
		}
	}
	for name := range written {
		if strings.HasPrefix(name, "TestDifferences") {
			require.True(t, documented[name], "%s is not in the table", name)
		}
	}
}

// testSource returns the text of all end-to-end tests.
func testSource(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("../*/*/*_test.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(b)
	}
	return all.String()
}

// tableRows returns the cells of the tables in a text, without their heads and the rows that name a
// theme.
func tableRows(t *testing.T, text string, columns int) (rows [][]string) {
	t.Helper()
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "| ---"):
			rows = rows[:len(rows)-1] // the line above is the head
		case strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| **"):
			cells := strings.Split(strings.Trim(line, "| \n"), " | ")
			require.Len(t, cells, columns, line)
			rows = append(rows, cells)
		}
	}
	return rows
}

// read returns a file of the repository, by its path from the root.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + path)
	require.NoError(t, err)
	return string(text)
}
