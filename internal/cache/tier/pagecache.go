package tier

import "golang.org/x/sys/unix"

// pageCache reports whether all pages of a range of an open file are in the page cache, or cannot
// be seen. It reads nothing.
type pageCache func(fd int, offset, length int64) bool

// findPageCache returns a pageCache by cachestat(2), or one that sees nothing: before Linux 6.5, in
// some sandboxes, and on ZFS, which has a cache of its own.
func (d *Disk) findPageCache() pageCache {
	if d.o.failure("cachestat") == nil && d.seesPages() {
		return func(fd int, offset, length int64) bool {
			cached, err := cachestat(fd, offset, length)
			return cached || err != nil
		}
	}
	d.o.Logger.Info("the page cache of the cache's disk cannot be seen: what is stored is checked again by time only",
		"path", d.o.Path, "after", recheckAfter)
	return func(int, int64, int64) bool { return true }
}

// seesPages reports whether cachestat works on the file system: it must find a page that was just
// read.
func (d *Disk) seesPages() bool {
	f, err := d.root.Open(marker)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // nothing was written
	if _, err = f.ReadAt(make([]byte, 1), 0); err != nil {
		return false
	}
	cached, err := cachestat(int(f.Fd()), 0, 1)
	return cached && err == nil
}

// cachestat takes about a microsecond for a segment.
func cachestat(fd int, offset, length int64) (bool, error) {
	var stat unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(offset), Len: uint64(length)}, &stat, 0)
	pages := (offset+length-1)/pageSize - offset/pageSize + 1
	return int64(stat.Cache) >= pages, err
}
