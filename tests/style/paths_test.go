package style

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPathsExist: each path that these documents name in backticks is in the repository. A name
// without a folder may be in any folder.
func TestPathsExist(t *testing.T) {
	t.Parallel()
	known, roots := map[string]bool{}, map[string]bool{}
	for _, file := range files(t) {
		root, _, _ := strings.Cut(file, "/")
		roots[root] = true
		known[path.Base(file)] = true
		for name := file; name != "."; name = path.Dir(name) {
			known[name] = true
		}
	}
	for _, document := range []string{"CONTRIBUTING.md", "docs/architecture.md", "docs/decisions.md"} {
		text, err := os.ReadFile("../../" + document)
		require.NoError(t, err)
		named := 0
		for _, quoted := range inCode.FindAllString(string(text), -1) {
			name := strings.TrimSuffix(strings.Trim(quoted, "`"), "/")
			root, _, folder := strings.Cut(name, "/")
			source := slices.Contains([]string{".go", ".lua", ".md"}, path.Ext(name))
			if strings.ContainsAny(name, " *{") || !source && !(folder && roots[root]) {
				continue
			}
			named++
			if !known[name] {
				t.Errorf("%s names %s, which does not exist", document, name)
			}
		}
		require.Greater(t, named, 10, "%s names few paths: is it read right?", document)
	}
}

// files returns the files of the repository by their paths from its root.
func files(t *testing.T) (all []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("../.."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains([]string{".git", "bin", "dist", "demo-store"}, name) && d.IsDir():
			return fs.SkipDir // not in the repository
		case !d.IsDir():
			all = append(all, name)
		}
		return nil
	})
	require.NoError(t, err)
	return all
}
