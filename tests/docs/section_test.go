package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReplaceSection(t *testing.T) {
	const document = "# Head\n<!-- figures: written by make bench -->\nold\n<!-- end of figures -->\ntail\n"
	const want = "# Head\n<!-- figures: written by make bench -->\n\nnew\n<!-- end of figures -->\ntail\n"
	got, err := ReplaceSection([]byte(document), "make bench", "figures", "new")
	require.NoError(t, err)
	require.Equal(t, want, string(got))
	again, err := ReplaceSection(got, "make bench", "figures", "new")
	require.NoError(t, err)
	require.Equal(t, string(got), string(again))
	other := strings.Replace(document, "make bench", "make it", 1)
	for _, broken := range []string{"", strings.Replace(document, "end of", "", 1), other} {
		_, err := ReplaceSection([]byte(broken), "make bench", "figures", "new")
		require.Error(t, err)
	}

	path := filepath.Join(t.TempDir(), "a.md")
	require.Error(t, WriteSection(path, "make bench", "figures", "new"))
	require.NoError(t, os.WriteFile(path, []byte(document), 0o600))
	require.NoError(t, WriteSection(path, "make bench", "figures", "new"))
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(written))
	require.ErrorContains(t, WriteSection(path, "make bench", "other", "new"), path)
}
