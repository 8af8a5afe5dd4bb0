package tier

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

const (
	// recheckAfter is the longest time for which a chunk is used without another check.
	recheckAfter = 24 * time.Hour
	// recheckRate bounds the bytes per second that checks read beyond the requested ones.
	recheckRate = 16 << 20
	// recheckBurst bounds these bytes at one moment.
	recheckBurst = 64 << 20
)

// checks are the results of the checks of one file of a segment. A chunk is compared with its
// checksum before its first use in the process. From then on it is sent unread, until one of these:
//
//   - The page cache has evicted a page of it, so that the disk would be read again. The kernel is
//     asked before a file is used, at most once a second.
//   - recheckAfter has passed since the oldest check in this file.
//
// Then the chunk is compared again before its next use. The check reads the chunk into the page
// cache, from which it is sent: a download reads nothing twice from the disk. For a short range the
// check reads more than is sent; recheckLimit bounds these bytes for the whole tier. Above that the
// chunk is used unread, and checked at its next use.
//
// The kernel does not show pages that were evicted and read again within a second, or by another
// program, or while they are being sent, which are 4 MiB at most.
type checks struct {
	inode uint64 // of the file

	reading sync.Mutex // held during the check of a chunk, so that only one reader reads it

	mu     sync.Mutex // guards the fields below
	once   chunkSet   // chunks that were right once
	right  chunkSet   // chunks that need no check
	since  time.Time  // time of the oldest check in right
	looked int64      // second since 1970 in which the kernel was asked last
}

// chunkSet is a set of chunks of a segment: bit i is chunk i.
type chunkSet uint16

func (s chunkSet) has(i int64) bool { return s&(1<<i) != 0 }

// review returns the chunks that need no check at present. It must be called before any read of the
// file, since the kernel reads ahead. size is the size of the file.
func (c *checks) review(inPageCache pageCache, fd int, size int64) chunkSet {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.since) >= recheckAfter {
		c.right = 0
	}
	if c.right == 0 || c.looked == now.Unix() {
		return c.right
	}
	c.looked = now.Unix()
	if inPageCache(fd, 0, size) {
		return c.right
	}
	for i := range int64(maxChunks) {
		from := i * ChunkSize // the header is shorter than a page, so the chunk ends in the page after these
		if c.right.has(i) && !inPageCache(fd, from, min(ChunkSize+1, size-from)) {
			c.right &^= 1 << i
		}
	}
	return c.right
}

// chunk returns the position of a chunk in the file.
func (f *openFile) chunk(i int64) (offset, length int64) {
	return f.header.size + i*ChunkSize, min(ChunkSize, f.header.length-i*ChunkSize)
}

// pageSize is the unit of the page cache in bytes.
var pageSize = int64(os.Getpagesize())

// buffers hold chunks that are being checked.
var buffers = sync.Pool{New: func() any { return new([ChunkSize]byte) }}

// check returns nil if a chunk may be used. It reads the chunk before its first use; later only if
// the chunk needs a check and recheckLimit allows it. wanted is the number of bytes of the chunk
// that are requested.
func (f *openFile) check(i, wanted int64) error {
	return doOnly(f.disk.io, "read", func() error { return f.checkNow(i, wanted) })
}

// checkNow is check in a goroutine that may hang.
func (f *openFile) checkNow(i, wanted int64) error {
	c := f.checks
	_, length := f.chunk(i)
	c.reading.Lock()
	defer c.reading.Unlock()
	c.mu.Lock()
	right, once := c.right.has(i), c.once.has(i)
	c.mu.Unlock()
	if right || once && !f.disk.rechecks.allow(length-wanted) {
		return nil
	}
	buf := buffers.Get().(*[ChunkSize]byte)
	defer buffers.Put(buf)
	return f.read(i, buf[:length])
}

// read reads a chunk into p and compares it with its checksum.
func (f *openFile) read(i int64, p []byte) error {
	err := f.disk.o.failure("read")
	if err == nil {
		offset, _ := f.chunk(i)
		_, err = f.file.ReadAt(p, offset)
	}
	switch {
	case err == io.EOF:
		return f.corrupt("it has become shorter")
	case errors.Is(err, os.ErrClosed): // the reader has given up
		return err
	case err != nil:
		f.disk.failed(&f.disk.reading, "cannot read from the cache's disk", err)
		return fmt.Errorf("cannot read %q: %w", f.path, err)
	case crc32.Checksum(p, castagnoli) != f.header.chunks[i]:
		return f.corrupt(fmt.Sprintf("chunk %d has another checksum", i))
	}
	f.checks.passed(i)
	return nil
}

// passed records that a chunk is right.
func (c *checks) passed(i int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.right == 0 {
		c.since = time.Now()
	}
	c.once |= 1 << i
	c.right |= 1 << i
}

// reset removes the results of all checks.
func (c *checks) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.once, c.right = 0, 0
}

// corrupt removes the segment. Readers with its open file get no further chunk without a check.
func (f *openFile) corrupt(why string) error {
	f.checks.reset()
	d := f.disk
	d.mu.Lock()
	e := d.index.get(f.header.key, false)
	mine := e == f.entry
	if mine {
		d.startUnlink(f.header.key)
		d.stats.Corrupt++
	}
	if f.entry.file == f {
		f.entry.file = nil
	}
	d.mu.Unlock()
	if mine {
		d.o.Logger.Warn("removed a file from the cache", "path", f.path, "err", why)
	}
	return fmt.Errorf("%w: %q: %s", ErrCorrupt, f.path, why)
}

// recheckLimit bounds the bytes that checks read beyond the requested ones: recheckRate a second,
// and as many as readers got without a check, since the rest of a chunk is often requested next. So
// above recheckRate, short ranges of cold files at most double the bytes that are read.
type recheckLimit struct {
	rate   *rate.Limiter
	earned atomic.Int64 // bytes that readers got, and that rate does not have yet: a reader only adds
}

// allow takes n bytes and returns true, or takes none if fewer are left.
func (l *recheckLimit) allow(n int64) bool {
	now := time.Now()
	l.rate.AllowN(now, -int(l.earned.Swap(0))) // a negative number adds to the bucket
	return l.rate.AllowN(now, int(n))
}

// pageCache reports whether all pages of a range of an open file are in the page cache, or cannot
// be seen there. It reads nothing.
type pageCache func(fd int, offset, length int64) bool

// findPageCache returns a pageCache that uses cachestat(2), or one that always returns true: before
// Linux 6.5, in some sandboxes, and on ZFS, which has a separate cache.
func (d *Disk) findPageCache(root *diskRoot) pageCache {
	if d.o.failure("cachestat") == nil && root.seesPages() {
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
func (r *diskRoot) seesPages() bool {
	f, err := r.Open(marker)
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

// cachestat reports whether all pages of a range are in the page cache. It takes about a
// microsecond for a segment.
func cachestat(fd int, offset, length int64) (bool, error) {
	var stat unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(offset), Len: uint64(length)}, &stat, 0)
	pages := (offset+length-1)/pageSize - offset/pageSize + 1
	return int64(stat.Cache) >= pages, err
}
