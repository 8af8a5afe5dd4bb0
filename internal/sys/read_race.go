//go:build race

package sys

import "syscall"

// ReadNoWait is read(2) of a non-blocking socket. The race detector learns from syscall.Read that
// what a client in this process did before it sent something was before what the server does with
// it.
func ReadNoWait(fd uintptr, p []byte) (int, error) {
	return Retry(func() (int, error) {
		n, err := syscall.Read(int(fd), p)
		return max(n, 0), err
	})
}
