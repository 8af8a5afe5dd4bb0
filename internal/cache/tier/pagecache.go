package tier

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pageCache tells whether all pages of a range of an open file are in the page cache, or cannot
// tell. It reads nothing.
type pageCache func(fd int, offset, length int64) bool

// findPageCache finds a system call that tells, where there is one.
func (d *Disk) findPageCache() pageCache {
	for _, way := range []struct {
		name string
		call func(fd int, offset, length int64) (bool, error)
	}{{"cachestat", cachestat}, {"mincore", mincore}} {
		if d.o.failure(way.name) == nil && d.seesPages(way.call) {
			return func(fd int, offset, length int64) bool {
				cached, err := way.call(fd, offset, length)
				return cached || err != nil
			}
		}
	}
	d.o.Logger.Info("the page cache of the cache's disk cannot be seen: what is stored is checked again by time only",
		"path", d.o.Path, "after", recheckAfter)
	return func(int, int64, int64) bool { return true }
}

// seesPages tells whether a call works on the file system: it must find a page that was just read.
// On ZFS, which has a cache of its own, none does, and some sandboxes refuse them.
func (d *Disk) seesPages(call func(fd int, offset, length int64) (bool, error)) bool {
	f, err := d.root.Open(marker)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // nothing was written
	if _, err = f.ReadAt(make([]byte, 1), 0); err != nil {
		return false
	}
	cached, err := call(int(f.Fd()), 0, 1)
	return cached && err == nil
}

// cachestat asks cachestat(2), of Linux 6.5: about a microsecond for a segment.
func cachestat(fd int, offset, length int64) (bool, error) {
	var stat unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(offset), Len: uint64(length)}, &stat, 0)
	pages := (offset+length-1)/pageSize - offset/pageSize + 1
	return int64(stat.Cache) >= pages, err
}

// mincore asks mincore(2) of a mapping that it makes: some 70 us for a segment.
func mincore(fd int, offset, length int64) (bool, error) {
	first := offset &^ (pageSize - 1)
	mapped, err := unix.Mmap(fd, first, int(offset+length-first), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Munmap(mapped) }() // it cannot fail
	pages := make([]byte, (int64(len(mapped))+pageSize-1)/pageSize)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mapped[0])), uintptr(len(mapped)),
		uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		return false, errno
	}
	return !slices.ContainsFunc(pages, func(page byte) bool { return page&1 == 0 }), nil
}
