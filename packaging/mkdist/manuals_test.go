package main

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"fastdfs-gateway/cmd/gateway/command"

	"github.com/stretchr/testify/require"
)

// TestManuals: the program, which has a page with its signals, each command and the configuration
// have a manual page.
func TestManuals(t *testing.T) {
	dir := t.TempDir()
	t.Chdir("../..")
	require.NoError(t, writeManuals(command.New("v1"), dir, "v1", time.Unix(0, 0)))
	for name, want := range map[string]string{
		"gateway.8": "SIGHUP", "gateway-check.8": "the configuration has errors", "gateway.conf.5": "store_path_count",
	} {
		out, err := exec.Command("gzip", "-dc", filepath.Join(dir, name+".gz")).Output()
		require.NoError(t, err)
		require.Contains(t, string(out), want, name)
	}
}
