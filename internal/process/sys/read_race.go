//go:build race

package sys

import "syscall"

// ReadNoWait reads from a non-blocking socket. It uses syscall.Read, from which the race
// detector learns that actions of a client in this process, before it sent the bytes, happen before
// actions of the server after it read them.
func ReadNoWait(fd uintptr, p []byte) (int, error) {
	return Retry(func() (int, error) {
		n, err := syscall.Read(int(fd), p)
		return max(n, 0), err
	})
}
