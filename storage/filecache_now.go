package storage

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resolveCached is RESOLVE_CACHED of openat2(2), which x/sys does not know.
const resolveCached = 0x20

// cachedHow looks for a name in the kernel's cache of names only, and never at the disk (Linux 5.12).
var cachedHow = unix.OpenHow{
	Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
	Resolve: unix.RESOLVE_BENEATH | resolveCached,
}

// noCachedLookUp is set where the kernel cannot do that, or a sandbox does not let it.
var noCachedLookUp atomic.Bool

// longestName is more than the longest name of a file of FastDFS.
const longestName = 256

// glance tells whether there is something under a name beneath d, or is unsure where the disk would have to be asked. It never waits,
// so the runtime is not told of the calls: under a flood of requests for files that are not there, that saves a tenth of the time.
func (d *dataDir) glance(name string) (there, sure bool) {
	if noCachedLookUp.Load() || len(name) >= longestName {
		return false, false
	}
	var path [longestName]byte // ends in a zero
	copy(path[:], name)
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT2, uintptr(d.fd), uintptr(unsafe.Pointer(&path)), uintptr(unsafe.Pointer(&cachedHow)),
		unix.SizeofOpenHow, 0, 0)
	switch errno {
	case 0:
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0) // nothing was done with it
		return true, true
	case unix.ENOENT:
		return false, true
	case unix.ENOSYS, unix.EPERM, unix.EINVAL:
		noCachedLookUp.Store(true)
	}
	return false, false
}

// readCached fills p from an offset of a file where the bytes are in the page cache, and never waits for the disk.
func readCached(fd int, p []byte, offset int64) bool {
	part := unix.Iovec{Base: unsafe.SliceData(p)}
	part.SetLen(len(p))
	n, _, errno := syscall.RawSyscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&part)), 1, uintptr(offset), uintptr(offset>>32), unix.RWF_NOWAIT)
	return errno == 0 && int(n) == len(p)
}
