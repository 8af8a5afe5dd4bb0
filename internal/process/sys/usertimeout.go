package sys

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

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
