//go:build !race

package sys

import (
	"syscall"
	"unsafe"
)

// ReadNoWait reads from a non-blocking socket. recv(2) costs less than read(2).
func ReadNoWait(fd uintptr, p []byte) (int, error) {
	return Retry(func() (int, error) {
		return result(syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p)), 0, 0, 0))
	})
}
