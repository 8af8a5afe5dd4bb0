// Package tests tests the scripts of this folder.
package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNeed: the script in front of make test installs what is missing, and where it cannot it says
// in one line what to do.
func TestNeed(t *testing.T) {
	t.Parallel()
	const installs = "#!/bin/sh\necho apt-get $*\n"
	for _, c := range []struct {
		name  string
		id    string
		fakes map[string]string // programs instead of those of the host; empty = there is none
		code  int
		says  []string
	}{
		{"nothing is missing", "0", map[string]string{"apt-get": "#!/bin/sh\nexit 9\n", "redis-server": "#!/bin/sh\n"},
			0, nil},
		{"as root", "0", map[string]string{"apt-get": installs, "redis-server": ""}, 0,
			[]string{"the tests will install by apt-get: redis-server\n", "apt-get update -qq\n",
				"apt-get install -y -qq --no-install-recommends redis-server\n"}},
		{"with sudo", "1000", map[string]string{"apt-get": installs, "redis-server": "",
			"sudo": "#!/bin/sh\necho sudo $1\n[ $1 = -n ] || exec \"$@\"\n"}, 0, // runs it, as the real one
			[]string{"sudo chmod\n", "sudo env\napt-get install -y", "sudo rm\n"}},
		{"sudo that asks for a password", "1000", map[string]string{"apt-get": installs, "redis-server": "",
			"sudo": "#!/bin/sh\nexit 1\n"}, 1,
			[]string{"the tests need redis-server; as root: apt-get install --no-install-recommends redis-server\n"}},
		{"without sudo", "1000", map[string]string{"apt-get": installs, "redis-server": "", "sudo": ""}, 1,
			[]string{"as root: apt-get install"}},
		{"no Debian", "0", map[string]string{"apt-get": "", "redis-server": ""}, 1,
			[]string{"the tests need redis-server (names of Debian's packages)"}},
		{"no Go", "0", map[string]string{"go": "", "redis-server": "#!/bin/sh\n"}, 1, []string{"Go is missing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out := need(t, c.id, c.fakes)
			require.Equal(t, c.code, code, out)
			for _, text := range c.says {
				require.Contains(t, out, text)
			}
			if c.says == nil {
				require.Empty(t, out)
			}
			if c.code != 0 {
				require.Equal(t, 1, strings.Count(out, "\n"), out)
			}
		})
	}
}

// need runs the script as an account, with programs instead of those of the host.
func need(t *testing.T, id string, fakes map[string]string, args ...string) (code int, out string) {
	t.Helper()
	fakes["id"] = "#!/bin/sh\necho " + id + "\n"
	cmd := exec.Command("./need", args...)
	cmd.Env = []string{"PATH=" + pathOf(t, fakes), "POLICY_RC_D=" + filepath.Join(t.TempDir(), "policy"),
		"BROWSER_DIR=" + t.TempDir()}
	text, err := cmd.CombinedOutput()
	require.NotNil(t, cmd.ProcessState, "%v", err)
	return cmd.ProcessState.ExitCode(), string(text)
}

// pathOf makes a folder with the programs that the script uses and asks for, and those of a test.
func pathOf(t *testing.T, fakes map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	script, err := os.ReadFile("need")
	require.NoError(t, err)
	names := []string{"bash", "sh", "env", "go", "tee", "chmod", "rm", "mkdir", "cp", "cmp", "dirname"}
	for _, m := range regexp.MustCompile(`(?m)^need ([^/\s]+) `).FindAllStringSubmatch(string(script), -1) {
		names = append(names, m[1])
	}
	for _, name := range names {
		if _, faked := fakes[name]; faked {
			continue
		}
		real, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(real, filepath.Join(dir, name)))
	}
	for name, text := range fakes {
		if text != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
		}
	}
	return dir
}
