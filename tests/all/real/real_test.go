package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSkippedWithoutBinaries: without a FastDFS the program prints that it skips the checks, and
// exits with 0.
func TestSkippedWithoutBinaries(t *testing.T) {
	real := filepath.Join(t.TempDir(), "real")
	out, err := exec.Command("go", "build", "-o", real, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := func(bin string) string {
		t.Helper()
		cmd := exec.Command(real)
		cmd.Env = append(os.Environ(), "FASTDFS_MODULE_NGINX=", "FASTDFS_BIN="+bin)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	const skipped = "SKIPPED: nothing was run beside a real FastDFS: "
	require.Equal(t, skipped+"FASTDFS_BIN names no folder with fdfs_trackerd and fdfs_storaged\n", run(""))
	require.Contains(t, run(t.TempDir()), skipped+"fdfs_trackerd is not in FASTDFS_BIN")
}
