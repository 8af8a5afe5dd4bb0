//go:build !race

package sys

import (
	"syscall"
	"unsafe"
)

// ReadNoWait is read(2) of a non-blocking socket.
func ReadNoWait(fd uintptr, p []byte) (int, error) {
	return Retry(func() (int, error) {
		return result(syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p))))
	})
}
