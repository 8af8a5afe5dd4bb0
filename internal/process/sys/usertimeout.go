package sys

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// SetUserTimeout is TCP_USER_TIMEOUT: the kernel ends a connection when the other host has not
// acknowledged sent bytes for d. Reads and writes then fail with ETIMEDOUT or, where a router says
// so, with EHOSTUNREACH. A host that works acknowledges at once, however long its program takes to
// respond.
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
