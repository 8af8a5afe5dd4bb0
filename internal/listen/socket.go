package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// unixPrefix begins the address of a unix socket.
const unixPrefix = "unix:"

// bind opens a listener for "host:port" or "unix:/path"; mode is that of the socket file.
func bind(address string, mode os.FileMode) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, unixPrefix)
	if !isUnix {
		o := net.ListenConfig{KeepAlive: -1, Control: keepAlive}
		ln, err := o.Listen(context.Background(), "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %q: %w", address, err)
		}
		return ln, nil
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	o := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		// The file is made with the mode of the socket: it is never open to more than it is meant
		// to be.
		var errMode error
		err := raw.Control(func(fd uintptr) {
			errMode = os.NewSyscallError("fchmod", syscall.Fchmod(int(fd), uint32(mode)))
		})
		return errors.Join(err, errMode)
	}}
	ln, err := o.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %q: %w", address, err)
	}
	if err := os.Chmod(path, mode); err != nil { // the process's umask may have taken some of it away
		return nil, errors.Join(fmt.Errorf("cannot set the mode of %q: %w", path, err), ln.Close())
	}
	return ln, nil
}

// Keep-alive probes find out about clients that vanished. Each accepted connection inherits them
// from its listener, so that it needs no calls of its own.
const (
	keepAliveIdle     = 15 // seconds without traffic before the first one
	keepAliveInterval = 15 // seconds between them
	keepAliveCount    = 9  // without an answer the connection is broken
)

// keepAlive turns them on.
func keepAlive(_, _ string, raw syscall.RawConn) error {
	var errs []error
	err := raw.Control(func(fd uintptr) {
		for _, o := range []struct{ level, name, value int }{
			{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, keepAliveIdle},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, keepAliveInterval},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, keepAliveCount},
		} {
			err := syscall.SetsockoptInt(int(fd), o.level, o.name, o.value)
			errs = append(errs, os.NewSyscallError("setsockopt", err))
		}
	})
	return errors.Join(append(errs, err)...)
}

// removeStale removes the socket of a gateway that did not end well. One with a listener
// stays, and so does anything that is no socket.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look at %q: %w", path, err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("cannot listen on %q: there is a file of that name", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("cannot listen on %q: another process does", path), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether %q is in use: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("cannot remove the stale socket: %w", err)
	}
	return nil
}
