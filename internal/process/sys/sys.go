// Package sys contains system calls that several packages use. All are retried when a signal
// interrupts them.
package sys

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Retry repeats a system call while signals interrupt it (EINTR).
func Retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// Pread reads from a file at an offset until p is full or the file ends.
func Pread(fd int, p []byte, offset int64) (n int, err error) {
	for n < len(p) {
		m, err := Retry(func() (int, error) { return unix.Pread(fd, p[n:], offset+int64(n)) })
		if err != nil || m == 0 {
			return n, err
		}
		n += m
	}
	return n, nil
}

// SetUserTimeout sets TCP_USER_TIMEOUT: the kernel ends a connection when the other host has not
// acknowledged sent bytes for d. Reads and writes then fail with ETIMEDOUT, or with EHOSTUNREACH if
// a router has reported that. A running host acknowledges at once, even if its program responds
// late.
func SetUserTimeout(conn *net.TCPConn, d time.Duration) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	return errors.Join(err, failed)
}
