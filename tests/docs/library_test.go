package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// TestLibrary: another module builds and runs with cachelock and antisteal, with the lines of
// go.mod that docs/locks.md shows. The checksums come from this module, so the test needs no
// network.
func TestLibrary(t *testing.T) {
	t.Parallel()
	_, lines, _ := strings.Cut(read(t, "tests/docs/testdata/library/go.mod"), "\n\nrequire ")
	_, path, _ := strings.Cut(lines, "=> ")
	shown := strings.Replace("require "+lines, strings.TrimSpace(path), "./third_party/fastdfs-gateway", 1)
	require.Contains(t, read(t, "docs/locks.md"), shown)

	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/library")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), []byte(read(t, "go.sum")), 0o600))
	for _, args := range [][]string{
		{"mod", "edit", "-replace=fastdfs-gateway=" + root},
		{"run", "-mod=mod", ".", redistest.Start(t).Addr()},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
		if args[0] == "run" {
			require.Regexp(t, `(?m)^/group1/M00/00/0C/x\.jpg\?token=[0-9a-f]{32}&ts=1700000000$`, string(out))
		}
	}
}
