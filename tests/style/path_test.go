package style

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pathRow is a row of a list of files in docs/architecture.md.
var pathRow = regexp.MustCompile("(?m)^\\d+\\. `([a-z0-9/_]+\\.go)`")

// TestPathOfARequest: the files that docs/architecture.md lists for a request exist, and are few.
func TestPathOfARequest(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	require.NoError(t, err)
	for _, c := range []struct {
		section         string
		files, packages int
	}{{"### The files of a local GET", 20, 6}, {"### The files of a remote miss", 35, 10}} {
		_, list, found := strings.Cut(string(text), c.section)
		require.True(t, found, c.section)
		list, _, _ = strings.Cut(list, "\n#")
		files, packages := map[string]bool{}, map[string]bool{}
		for _, row := range pathRow.FindAllStringSubmatch(list, -1) {
			require.FileExists(t, "../../"+row[1])
			require.NotContains(t, files, row[1], "it is listed twice")
			files[row[1]], packages[path.Dir(row[1])] = true, true
		}
		require.NotEmpty(t, files, c.section)
		require.LessOrEqual(t, len(files), c.files, c.section)
		require.LessOrEqual(t, len(packages), c.packages, c.section)
	}
}
