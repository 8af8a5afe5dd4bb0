//go:build !race

package httpguard

import (
	"syscall"
	"unsafe"
)

// readNonblock is read(2) on a non-blocking socket. It is a raw system call: the runtime need not
// know of a call that never waits, and would take the processor away from its thread.
func readNonblock(fd uintptr, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
