//go:build race

package sys

import "syscall"

// ReadNoWait reads from a non-blocking socket. It calls syscall.Read, which synchronizes for the
// race detector: actions of a client in this process before a write happen before actions of the
// server after the read.
func ReadNoWait(fd uintptr, p []byte) (int, error) {
	return Retry(func() (int, error) {
		n, err := syscall.Read(int(fd), p)
		return max(n, 0), err
	})
}
