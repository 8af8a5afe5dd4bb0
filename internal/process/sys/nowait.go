package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below never block, so they are raw system calls, which bypass the scheduler: the
// runtime takes the processor from a thread in an ordinary system call, and a server that spends
// most of its time in the kernel loses a tenth of its throughput by that. A call that would block
// returns unix.EAGAIN.

// SendNoWait sends as many bytes of two parts of memory as the socket accepts. One part may be
// empty.
func SendNoWait(fd uintptr, first, second []byte, flags int) (int, error) {
	if len(first) == 0 {
		first, second = second, nil
	}
	if len(second) == 0 { // cheaper than sendmsg(2)
		return Retry(func() (int, error) {
			return result(syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(first))),
				uintptr(len(first)), uintptr(flags|unix.MSG_DONTWAIT), 0, 0))
		})
	}
	parts := [2]unix.Iovec{{Base: unsafe.SliceData(first)}, {Base: unsafe.SliceData(second)}}
	parts[0].SetLen(len(first))
	parts[1].SetLen(len(second))
	message := unix.Msghdr{Iov: &parts[0]}
	message.SetIovlen(len(parts))
	return Retry(func() (int, error) {
		return result(syscall.RawSyscall(syscall.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&message)),
			uintptr(flags|unix.MSG_DONTWAIT)))
	})
}

// SendfileNoWait calls sendfile(2) to a non-blocking socket. The bytes of the file must be in the
// page cache, otherwise the call waits for the disk.
func SendfileNoWait(fd uintptr, file int, offset *int64, length int) (int, error) {
	return Retry(func() (int, error) {
		return result(syscall.RawSyscall6(syscall.SYS_SENDFILE, fd, uintptr(file), uintptr(unsafe.Pointer(offset)),
			uintptr(length), 0, 0))
	})
}

// CloseSocket closes a socket that has no SO_LINGER time above 0: close(2) would wait with one.
func CloseSocket(fd int) error {
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(fd), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// PreadNoWait reads from a file at an offset, only bytes in the page cache: it never waits for the
// disk.
func PreadNoWait(fd int, p []byte, offset int64) (int, error) {
	part := unix.Iovec{Base: unsafe.SliceData(p)}
	part.SetLen(len(p))
	return Retry(func() (int, error) {
		return result(syscall.RawSyscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&part)), 1,
			uintptr(offset), uintptr(offset>>32), unix.RWF_NOWAIT))
	})
}

// result converts the results of a raw system call.
func result(n, _ uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
