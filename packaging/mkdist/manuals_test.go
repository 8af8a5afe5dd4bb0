package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/cmd/gateway/command"

	"github.com/stretchr/testify/require"
)

// TestConfigPage: the manual page contains each line of the sample.
func TestConfigPage(t *testing.T) {
	t.Parallel()
	sample, err := os.ReadFile("../../mod_fastdfs.conf")
	require.NoError(t, err)
	page := strings.ReplaceAll(string(configPage(string(sample), "v1", time.Unix(0, 0))), `\&`, "")
	for line := range strings.Lines(string(sample)) {
		require.Contains(t, page, strings.TrimSuffix(line, "\n"))
	}
}

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
