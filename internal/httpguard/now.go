//go:build !race

package httpguard

import (
	"syscall"
	"unsafe"
)

// readNow is read(2) of a socket, which never waits. So the runtime is not told of the call: it takes a processor away from a thread
// that seems to be held up in the kernel.
func readNow(fd uintptr, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
