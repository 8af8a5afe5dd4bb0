package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBash completes in a real bash.
func TestBash(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "gateway.bash")
	require.NoError(t, os.WriteFile(file, bash(someCommands), 0o600))
	for line, want := range map[string]string{
		"gateway ":           "serve check",
		"gateway c":          "check",
		"gateway -":          "-c",
		"gateway serve -":    "-c",
		"gateway check -":    "-json -n",
		"gateway check -j":   "-json",
		"gateway check -n ":  "", // files
		"gateway nonsense -": "",
	} {
		words := strings.Split(line, " ")
		script := `source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gateway; echo "${COMPREPLY[*]}"`
		out, err := exec.Command("bash", append([]string{"-euc", script, "bash", file}, words...)...).CombinedOutput()
		require.NoError(t, err, "%s: %s", line, out)
		require.Equal(t, want+"\n", string(out), line)
	}
}
