package sendfile

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below never wait, so they are raw system calls: the runtime would take the processor
// away from a thread that it sees in a system call, which costs a server that spends most of its
// time in the kernel a tenth of its throughput.

// sendNonblock sends what the socket takes of two stretches of memory, one of which may be empty.
func sendNonblock(fd uintptr, first, second []byte, flags int) (int, error) {
	var parts [2]unix.Iovec
	n := 0
	for _, b := range [...][]byte{first, second} {
		if len(b) > 0 {
			parts[n].Base = unsafe.SliceData(b)
			parts[n].SetLen(len(b))
			n++
		}
	}
	message := unix.Msghdr{Iov: &parts[0]}
	message.SetIovlen(n)
	sent, _, errno := syscall.RawSyscall(syscall.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&message)),
		uintptr(flags|unix.MSG_DONTWAIT))
	if errno != 0 {
		return 0, errno
	}
	return int(sent), nil
}

// sendfileNonblock is sendfile(2) of bytes that are in memory.
func sendfileNonblock(fd uintptr, file int, offset *int64, length int) (int, error) {
	sent, _, errno := syscall.RawSyscall6(syscall.SYS_SENDFILE, fd, uintptr(file), uintptr(unsafe.Pointer(offset)),
		uintptr(length), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(sent), nil
}

// cachedPage tells whether the byte at an offset of a file is in the page cache: reading it would
// not wait for the disk.
func cachedPage(file int, offset int64) bool {
	var b byte
	part := unix.Iovec{Base: &b}
	part.SetLen(1)
	n, _, _ := syscall.RawSyscall6(unix.SYS_PREADV2, uintptr(file), uintptr(unsafe.Pointer(&part)), 1, uintptr(offset),
		uintptr(offset>>32), unix.RWF_NOWAIT)
	return n == 1
}

// seen remembers stretches of files that were found in the page cache: a look-up costs as much as
// sending some KiB.
var seen recent

// recent holds what was found in the last two seconds. Descriptors are reused for other files and
// slots of the table are shared, so an entry may be wrong. The only effect is a raw call that waits
// for the disk.
type recent struct {
	entries [1 << 12]atomic.Uint64 // the key of what was found; its low byte is changed by the second of it
}

// place gives the key of the chunk of a file at an offset, its place in the table, and the second.
func (r *recent) place(file int, offset int64) (key uint64, entry *atomic.Uint64, now byte) {
	// Fibonacci hashing: the high bits depend on all others
	key = (uint64(file)<<40 ^ uint64(offset/chunk)) * 0x9e3779b97f4a7c15
	return key, &r.entries[key>>52], byte(time.Since(epoch) / time.Second)
}

// lately tells whether the chunk was noted in this second or the one before.
func (r *recent) lately(file int, offset int64) bool {
	key, entry, now := r.place(file, offset)
	second := entry.Load() ^ key
	return second < 1<<8 && now-byte(second) <= 1
}

// note remembers that the chunk was found.
func (r *recent) note(file int, offset int64) {
	key, entry, now := r.place(file, offset)
	entry.Store(key ^ uint64(now))
}

var epoch = time.Now()
