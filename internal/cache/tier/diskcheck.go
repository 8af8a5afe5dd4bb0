package tier

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"time"
)

// recheckAfter is the longest time for which a chunk is used without another check.
const recheckAfter = 24 * time.Hour

// checks are the results of the checks of one file of a segment. A chunk is compared with its
// checksum before its first use in the process, and then sent unread until recheckAfter has passed
// since the oldest check in this file. The check reads the chunk into the page cache, from which it
// is sent: a download reads nothing twice from the disk.
type checks struct {
	inode uint64 // of the file

	reading sync.Mutex // held during the check of a chunk, so that only one reader reads it

	mu    sync.Mutex // guards the fields below
	right chunkSet   // chunks that need no check
	since time.Time  // time of the oldest check in right
}

// chunkSet is a set of chunks of a segment: bit i is chunk i.
type chunkSet uint16

func (s chunkSet) has(i int64) bool { return s&(1<<i) != 0 }

// passed returns the chunks that need no check at present.
func (c *checks) passed() chunkSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.since) >= recheckAfter {
		c.right = 0
	}
	return c.right
}

// chunk returns the position of a chunk in the file.
func (f *openFile) chunk(i int64) (offset, length int64) {
	return f.header.size + i*ChunkSize, min(ChunkSize, f.header.length-i*ChunkSize)
}

// buffers hold chunks that are being checked.
var buffers = sync.Pool{New: func() any { return new([ChunkSize]byte) }}

// check returns nil if a chunk may be used. It reads the chunk, unless another reader has done so.
func (f *openFile) check(i int64) error {
	return doOnly(f.disk.io, "check", readTime, func() error { return f.checkNow(i) })
}

// checkNow is check in a goroutine that may hang.
func (f *openFile) checkNow(i int64) error {
	f.checks.reading.Lock()
	defer f.checks.reading.Unlock()
	if f.checks.passed().has(i) {
		return nil
	}
	_, length := f.chunk(i)
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
	f.checks.pass(i)
	return nil
}

// pass records that a chunk is right.
func (c *checks) pass(i int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.right == 0 {
		c.since = time.Now()
	}
	c.right |= 1 << i
}

// reset removes the results of all checks.
func (c *checks) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.right = 0
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
