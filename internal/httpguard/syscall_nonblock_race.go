//go:build race

package httpguard

import "syscall"

// readNonblock is read(2) of a socket. The race detector learns from syscall.Read that what a
// client in this process did before it sent something was before what the server does with it.
func readNonblock(fd uintptr, p []byte) (int, syscall.Errno) {
	n, err := syscall.Read(int(fd), p)
	if err == nil {
		return n, 0
	}
	errno, ok := err.(syscall.Errno)
	if !ok {
		errno = syscall.EIO
	}
	return 0, errno
}
