package local

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

// noWaitHow makes openat2(2) look up a name in the kernel's dentry cache only (Linux 5.12).
var noWaitHow = unix.OpenHow{
	Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
	Resolve: unix.RESOLVE_BENEATH | sys.ResolveCached,
}

// noWaitDisabled is set if the kernel does not support RESOLVE_CACHED, or a sandbox forbids
// openat2(2).
var noWaitDisabled atomic.Bool

// longestName is longer than any name of a file of FastDFS.
const longestName = 256

// statNoWait is stat from the kernel's memory; sure is false if that is not possible, for example
// because the disk would have to be read.
func (d *dataDir) statNoWait(name string) (seen identity, sure bool, err error) {
	fd, sure, err := d.lookUpNoWait(name)
	if !sure || err != nil {
		return identity{}, sure, err
	}
	var st unix.Statx_t
	empty := [1]byte{}
	_, _, errno := syscall.RawSyscall6(unix.SYS_STATX, fd, uintptr(unsafe.Pointer(&empty)),
		unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, uintptr(unsafe.Pointer(&st)), 0)
	closeRaw(fd)
	if errno != 0 {
		return identity{}, false, nil
	}
	return identityOfStatx(&st), true, nil
}

// lookUpNoWait looks a name up in the kernel's memory; sure is false if that is not possible. If
// err is nil, the caller closes fd, which is O_PATH, by closeRaw.
//
// The system calls never block, so they are raw, without a notice to the scheduler: a check of a
// name that is in memory costs less than the wake-up of the thread that watches system calls.
func (d *dataDir) lookUpNoWait(name string) (fd uintptr, sure bool, err error) {
	if noWaitDisabled.Load() || len(name) >= longestName {
		return 0, false, nil
	}
	var path [longestName]byte // with a terminating NUL
	copy(path[:], name)
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT2, uintptr(d.fd), uintptr(unsafe.Pointer(&path)),
		uintptr(unsafe.Pointer(&noWaitHow)), unix.SizeofOpenHow, 0, 0)
	switch errno {
	case 0:
		return fd, true, nil
	case unix.ENOENT:
		return 0, true, unix.ENOENT
	case unix.ENOSYS, unix.EPERM, unix.EINVAL:
		noWaitDisabled.Store(true)
	}
	return 0, false, nil
}

func closeRaw(fd uintptr) {
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0) // O_PATH: nothing is lost
}

func identityOfStatx(st *unix.Statx_t) identity {
	return identity{inode: inode{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}, links: uint64(st.Nlink),
		mode: uint32(st.Mode), size: int64(st.Size), mtime: timespecOf(st.Mtime), ctime: timespecOf(st.Ctime)}
}

func timespecOf(t unix.StatxTimestamp) unix.Timespec {
	return unix.NsecToTimespec(t.Sec*int64(time.Second) + int64(t.Nsec))
}
