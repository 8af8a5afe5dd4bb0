package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// programs are what the stand-in is called by.
var programs = []string{"fdfs_trackerd", "fdfs_storaged", "fdfs_upload_file", "fdfs_append_file", "fdfs_delete_file",
	"fdfs_regenerate_filename", "nginx"}

// build makes this program, the stand-ins and, where GATEWAY_BINARY names none, the gateway.
func build(t *testing.T) (real, bin, gateway string) {
	t.Helper()
	dir := t.TempDir()
	compile := func(to, folder, what string) string {
		cmd := exec.Command("go", "build", "-o", to, what)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return to
	}
	bin = filepath.Join(dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	standin := compile(filepath.Join(bin, "standin"), ".", "./standin")
	for _, name := range programs {
		require.NoError(t, os.Link(standin, filepath.Join(bin, name)))
	}
	if gateway = os.Getenv("GATEWAY_BINARY"); gateway == "" {
		gateway = compile(filepath.Join(dir, "gateway"), filepath.Join("..", ".."), "./cmd/gateway")
	}
	return compile(filepath.Join(dir, "real"), ".", "."), bin, gateway
}

// start runs this program on the stand-ins, and gives what it printed and its exit code.
func start(t *testing.T, env string, name string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "STANDIN_SYNC_DELAY=300ms", "FASTDFS_BIN=", "FASTDFS_MODULE_NGINX=", env)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestSkippedWithoutBinaries(t *testing.T) {
	real := filepath.Join(t.TempDir(), "real")
	out, err := exec.Command("go", "build", "-o", real, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	said, code := start(t, "", real)
	require.Zero(t, code)
	require.Equal(t,
		"SKIPPED: nothing was run beside a real FastDFS: FASTDFS_BIN names no folder with fdfs_trackerd and "+
			"fdfs_storaged\n", said)
	said, code = start(t, "FASTDFS_BIN="+t.TempDir(), real)
	require.Zero(t, code)
	require.Contains(t, said, "SKIPPED: nothing was run beside a real FastDFS: fdfs_trackerd is not in FASTDFS_BIN")
}

// TestStandIns runs every part, and every switch, on the stand-ins: this is about the harness, not
// about FastDFS.
func TestStandIns(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	if reason := (&settings{bin: "/bin"}).missing(); os.Getuid() != 0 ||
		reason == "ip(8) is missing (apt-get install iproute2)" {
		t.Skip("SKIPPED: the stand-ins need root and iproute2 (apt-get install iproute2)")
	}
	real, bin, gateway := build(t)
	run := func(env string, args ...string) (string, int) {
		said, code := start(t, env, real, append([]string{"-bin", bin, "-gateway", gateway, "-large", "8", "-rate",
			"60"}, args...)...)
		t.Logf("%s", said)
		return said, code
	}
	t.Run("packed files, addresses", func(t *testing.T) {
		t.Parallel()
		said, code := run("", "-trunk", "-soak", "6s", "-only", "table|types|crc|freeze|soak|address|links")
		require.Zero(t, code)
		for _, line := range []string{"ok   table: 36 kinds x 7 targets", "ok   types",
			"ok   crc: the id's CRC32 is the standard one",
			"ok   soak", "ok   address: a file of s2", "ok   links: at edge", " 0 failed"} {
			require.Contains(t, said, line)
		}
		require.Regexp(t, `ok   freeze: s[12] frozen`, said)
		require.Regexp(t, `ok   freeze: s[12] web server frozen`, said)
		require.Contains(t, said, "ok   freeze: cold file behind a frozen web server")
	})
	t.Run("parts that take their time", func(t *testing.T) {
		t.Parallel()
		said, code := run("", "-trunk", "-only", "delete|mutable|redirect")
		require.Zero(t, code)
		for _, line := range []string{"ok   delete: normal: 404 at its source",
			"ok   delete: packed: 404 at its replica",
			"ok   mutable: appender modified: new at the edge", "ok   redirect: source is dead: status 302",
			"ok   delete: normal, replication closed: 404 at its source", "12 passed, 0 failed"} {
			require.Contains(t, said, line)
		}
	})
	t.Run("IPv6, storage ids, two trackers, the module", func(t *testing.T) {
		t.Parallel()
		said, code := run("FASTDFS_MODULE_NGINX="+filepath.Join(bin, "nginx"), "-ipv6", "-trackers", "2", "-only",
			"table|address",
			"-set", "tracker.store_lookup=2")
		require.Zero(t, code)
		require.Contains(t, said, "ok   table: 32 kinds x 9 targets, 0 cells are wrong")
		require.Contains(t, said, "ok   address: a file of s1")
	})
	t.Run("an interrupt", func(t *testing.T) {
		t.Parallel()
		interrupt(t, real, "-bin", bin, "-gateway", gateway, "-only", "soak")
	})
	t.Run("a storage that changes bytes", func(t *testing.T) {
		t.Parallel()
		said, code := run("STANDIN_CORRUPT=slave", "-ids", "-only", "table")
		require.Equal(t, 1, code)
		require.Contains(t, said, "FAIL table: slave at source: WRONG BYTES: 900, of which 0 are right, want 900")
	})
}

// interrupt sends SIGINT to a run that has its cluster up, and looks for what the run leaves
// behind.
func interrupt(t *testing.T, real string, args ...string) {
	t.Helper()
	temp := t.TempDir()
	cmd := exec.Command(real, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "FastDFS of ") {
		t.Log(lines.Text())
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	for lines.Scan() {
		t.Log(lines.Text())
	}
	require.Error(t, cmd.Wait())
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left, "the folder of the run")
	spaces, err := filepath.Glob(fmt.Sprintf("/run/netns/real%d*", cmd.Process.Pid))
	require.NoError(t, err)
	require.Empty(t, spaces)
}
