package http

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// denyOpenat2 is the environment variable that makes this program execute a command without
// openat2(2). The value is the errno of the failed calls.
const denyOpenat2 = "TEST_DENY_OPENAT2"

func init() {
	if errno, err := strconv.Atoi(os.Getenv(denyOpenat2)); err == nil {
		err = execWithout(unix.SYS_OPENAT2, unix.Errno(errno), os.Args[1:])
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// execWithout replaces this process by a command in which a system call fails with an errno,
// as container runtimes do by seccomp(2) with calls that they do not know.
func execWithout(call uint32, errno unix.Errno, command []string) error {
	runtime.LockOSThread() // the filter applies to the thread
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	if err != nil {
		return fmt.Errorf("cannot filter system calls: %w", err)
	}
	return syscall.Exec(command[0], command, os.Environ())
}

// TestWithoutOpenat2: if a sandbox rejects openat2(2), the gateway serves every
// file, and nothing else, and logs once that it opens files folder by folder.
func TestWithoutOpenat2(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file := s.Normal("jpg", s.Bytes(100_000))
	served := []storetest.Object{file, s.Normal("txt", s.Bytes(10)),
		s.Slave(file, "_b", "jpg", s.Bytes(100)), s.Appender("log", s.Bytes(100)), s.Trunk("txt", s.Bytes(100)),
		s.TrunkLink(file), linked(s, file)}
	rejected := []storetest.Object{s.Missing("jpg", storetest.Created),
		s.Link("txt", filepath.Join(s.Dir, "canary")), s.Link("txt", "/etc/passwd")}
	swapped := filepath.Join(s.Root(storetest.Group, 0), "data", "00", "0B")
	require.NoError(t, os.Symlink(filepath.Dir(file.Path), swapped), "a folder is a link")
	conf := e2e.WriteConfig(t, s.Config(e2e.WithListen(nil)...))
	cmd := exec.Command(os.Args[0], e2e.Binary, "serve", "-c", conf)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", denyOpenat2, unix.EPERM))
	p := e2e.StartCommand(t, conf, cmd)
	for range 3 {
		for _, o := range served {
			a := p.Get(o.URL())
			require.Equal(t, 200, a.StatusCode, "%s: %s", o.URL(), a.Body)
			require.Equal(t, o.Content, a.Body)
		}
		for _, o := range rejected {
			require.Equal(t, 404, p.Get(o.URL()).StatusCode, o.URL())
		}
		require.Equal(t, 404, p.Get(strings.Replace(file.URL(), "/00/0A/", "/00/0B/", 1)).StatusCode)
	}
	require.Equal(t, 1, strings.Count(p.LogText(), "folder by folder"))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	require.NoError(t, err)
	require.Contains(t, string(status), "Seccomp:\t2", "the filter is in force")
}
