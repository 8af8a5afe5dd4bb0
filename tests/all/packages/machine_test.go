package packages

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// rootPackages are added to a minimal Debian for the tests: systemd, the recommendations of the
// packages, and the programs that the documents use.
const rootPackages = "systemd,systemd-sysv,dbus,logrotate,ca-certificates,curl"

// rootTime bounds the installation of that Debian, whose packages are downloaded.
const rootTime = 10 * time.Minute

// debian returns the folder of a small Debian, which stays in bin between runs. Tests must not
// change the folder.
var debian = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("../../../bin/test-root")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), rootTime)
	defer cancel()
	release, err := exec.Command("sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME").Output()
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(dir + ".new"); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "debootstrap", "--variant=minbase", "--include="+rootPackages,
		strings.TrimSpace(string(release)), dir+".new")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("debootstrap: %w\n%s", err, out)
	}
	return dir, os.Rename(dir+".new", dir)
})

// machine is a Debian that has booted with systemd in a container. Its changes are in memory, and
// loopback is its only network interface.
type machine struct {
	t      *testing.T
	leader string // process id of its systemd
}

// boot starts a machine with folders of this host below /srv, and stops it at the end of the test.
func boot(t *testing.T, folders map[string]string) *machine {
	t.Helper()
	root, err := debian()
	require.NoError(t, err)
	args := []string{"--quiet", "--register=no", "--keep-unit", "--private-network", "--volatile=overlay",
		"--machine=" + fmt.Sprintf("gateway-%d", time.Now().UnixNano()), "--directory=" + root, "--boot"}
	for name, dir := range folders {
		args = append(args, "--bind-ro="+dir+":/srv/"+name)
	}
	cmd := exec.Command("systemd-nspawn", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	var console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &console
	require.NoError(t, cmd.Start())
	m := &machine{t: t}
	t.Cleanup(func() {
		if t.Failed() && m.leader != "" {
			_, log := m.try("journalctl --no-pager -u 'fastdfs-gateway*' | tail -100")
			t.Log(log)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM) // systemd powers off
		_ = cmd.Wait()                          // by a signal
	})
	eventually.True(t, func() bool {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		require.NoError(t, err, console.String())
		m.leader = strings.TrimSpace(string(children))
		if m.leader == "" {
			return false
		}
		code, _ := m.try("systemctl is-system-running --quiet")
		return code == 0
	}, "the machine does not boot")
	return m
}

// try runs a script of bash in the machine and returns its exit code and output.
func (m *machine) try(script string) (code int, out string) {
	cmd := exec.Command("nsenter", "--target", m.leader, "--all", "--", "/usr/bin/env", "-i",
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "TERM=dumb", "HOME=/root",
		"/bin/bash", "-o", "pipefail", "-c", script)
	cmd.Dir = "/"
	text, _ := cmd.CombinedOutput() // the exit code has the result
	return cmd.ProcessState.ExitCode(), string(text)
}

// run runs a script that must succeed, and returns its output.
func (m *machine) run(script string) string {
	m.t.Helper()
	code, out := m.try(script)
	require.Zero(m.t, code, "%s\n%s", script, out)
	return strings.TrimSpace(out)
}

// await runs a script until it succeeds.
func (m *machine) await(script string) {
	m.t.Helper()
	eventually.True(m.t, func() bool { code, _ := m.try(script); return code == 0 }, script)
}

// fails runs a script that must fail, and returns its output.
func (m *machine) fails(script string) string {
	m.t.Helper()
	code, out := m.try(script)
	require.NotZero(m.t, code, "%s\n%s", script, out)
	return out
}
