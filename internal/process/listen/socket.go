package listen

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"

	"fastdfs-gateway/internal/i18n"

	"golang.org/x/sys/unix"
)

// unixPrefix begins the address of a unix socket.
const unixPrefix = "unix:"

// bind opens a listener for "host:port" or "unix:/path"; mode is that of the socket file.
func bind(address string, mode os.FileMode) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, unixPrefix)
	if !isUnix {
		o := net.ListenConfig{KeepAlive: -1, Control: setOptions}
		ln, err := o.Listen(context.Background(), "tcp", address)
		if err != nil {
			return nil, i18n.Errorf("cannot listen on %q: %w", address, err)
		}
		return ln, nil
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ln, err := bindUnix(path, mode)
	if err != nil {
		return nil, i18n.Errorf("cannot listen on %q: %w", address, err)
	}
	return ln, nil
}

// bindUnix makes the socket file with its mode. It never changes the mode by name: the account that
// owns the folder could put a link there in between. The kernel takes the mode of the file from the
// open socket, less the umask, so the umask is 0 during bind(2). unshare(2) gives this thread a
// separate umask, and other threads keep theirs. Where a sandbox forbids unshare(2), the umask of
// all threads is 0 for these microseconds; that is safe, since the program makes each file with an
// explicit mode.
func bindUnix(path string, mode os.FileMode) (net.Listener, error) {
	o := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var errMode error
		err := raw.Control(func(fd uintptr) {
			errMode = os.NewSyscallError("fchmod", syscall.Fchmod(int(fd), uint32(mode)))
		})
		return errors.Join(err, errMode)
	}}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Unshare(unix.CLONE_FS)
	defer unix.Umask(unix.Umask(0))
	return o.Listen(context.Background(), "unix", path)
}

// Give changes the owner of the file of a unix socket of this process. It returns an error if
// another program has replaced the file by something other than a socket.
func (s *Socket) Give(uid, gid int) error {
	path := s.Path()
	if path == "" {
		return nil
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if info.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return i18n.Errorf("%q was replaced by something that is no socket", path)
	}
	if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "chown", Path: path, Err: err}
	}
	return nil
}

// Keep-alive probes detect clients that vanished.
const (
	keepAliveIdle     = 15 // seconds without traffic before the first probe
	keepAliveInterval = 15 // seconds between probes
	keepAliveCount    = 9  // probes without a reply after which the connection is closed
)

// setOptions sets the options of a TCP listener. Each accepted connection inherits them (tcp(7)),
// without further system calls.
func setOptions(_, _ string, raw syscall.RawConn) error {
	var errs []error
	err := raw.Control(func(fd uintptr) {
		for _, o := range []struct{ level, name, value int }{
			{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, keepAliveIdle},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, keepAliveInterval},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, keepAliveCount},
			{syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1}, // no part of a response waits for an acknowledgement
		} {
			err := syscall.SetsockoptInt(int(fd), o.level, o.name, o.value)
			errs = append(errs, os.NewSyscallError("setsockopt", err))
		}
	})
	return errors.Join(append(errs, err)...)
}

// removeStale removes the socket of a gateway that was killed. A socket with a listener stays, and
// so does any other file.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return i18n.Errorf("cannot look at %q: %w", path, err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return i18n.Errorf("cannot listen on %q: there is a file of that name", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(i18n.Errorf("cannot listen on %q: another process does", path), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return i18n.Errorf("cannot tell whether %q is in use: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return i18n.Errorf("cannot remove the stale socket: %w", err)
	}
	return nil
}
