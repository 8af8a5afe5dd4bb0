package tier

import (
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// openFile is a segment's file that is being read, by any number of users.
type openFile struct {
	disk   *Disk
	file   *os.File
	path   string
	header header
	inode  uint64
	entry  *entry // set by admit
	users  int    // guarded by Disk.mu
}

// openSegment opens a file and checks its header. It must hold the segment that its name says.
func openSegment(d *Disk, path string, key Key) (_ *openFile, err error) {
	if err := d.o.failure("open"); err != nil {
		return nil, err
	}
	file, err := d.root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close() // nothing was written
		}
	}()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return nil, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%w: no regular file", errFormat)
	}
	var buf [maxHeader]byte
	n, err := file.ReadAt(buf[:], 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	h, err := parseHeader(buf[:n], stat.Size)
	if err != nil {
		return nil, err
	}
	if h.key != key {
		return nil, fmt.Errorf("%w: it holds %.300q", errFormat, h.key.String())
	}
	return &openFile{disk: d, file: file, path: path, header: *h, inode: stat.Ino}, nil
}

func (f *openFile) close() { _ = f.file.Close() } // nothing was written

// release ends one use.
func (f *openFile) release() {
	f.disk.mu.Lock()
	f.users--
	last := f.users == 0
	if last && f.entry.file == f {
		f.entry.file = nil
	}
	f.disk.mu.Unlock()
	if last {
		f.close()
	}
}

// at is View.At. It stops before the first chunk that was not checked yet, unless that is the one at the offset.
func (f *openFile) at(offset, limit int64) (Stretch, error) {
	first := offset / ChunkSize
	if err := f.check(first); err != nil {
		return Stretch{}, err
	}
	end, checked := min(f.header.length, offset+limit), f.entry.checked.Load()
	for i := first + 1; i*ChunkSize < end; i++ {
		if checked&(1<<i) == 0 {
			end = i * ChunkSize
		}
	}
	return Stretch{Fd: int(f.file.Fd()), Offset: f.header.size + offset, Length: end - offset}, nil
}

// buffers are for chunks that are checked.
var buffers = sync.Pool{New: func() any { return new([ChunkSize]byte) }}

// check compares a chunk with its checksum, once.
func (f *openFile) check(i int64) error {
	if f.entry.checked.Load()&(1<<i) != 0 {
		return nil
	}
	buf := buffers.Get().(*[ChunkSize]byte)
	defer buffers.Put(buf)
	return f.read(i, buf[:min(ChunkSize, f.header.length-i*ChunkSize)])
}

// read reads a chunk and checks it.
func (f *openFile) read(i int64, p []byte) error {
	err := f.disk.o.failure("read")
	if err == nil {
		_, err = f.file.ReadAt(p, f.header.size+i*ChunkSize)
	}
	switch {
	case err == io.EOF:
		return f.damaged("it has become shorter")
	case err != nil:
		f.disk.failed(&f.disk.reading, "cannot read from the cache's disk", err)
		return fmt.Errorf("cannot read %q: %w", f.path, err)
	case crc32.Checksum(p, castagnoli) != f.header.chunks[i]:
		return f.damaged(fmt.Sprintf("chunk %d has another checksum", i))
	}
	f.entry.checked.Or(1 << i)
	return nil
}

// damaged drops the segment.
func (f *openFile) damaged(why string) error {
	d := f.disk
	d.mu.Lock()
	e := d.index.get(f.header.key, false)
	mine := e == f.entry
	if mine {
		d.index.remove(f.header.key)
		d.stats.Damaged++
	}
	if f.entry.file == f {
		f.entry.file = nil
	}
	d.mu.Unlock()
	if mine {
		d.unlink(f.path)
		d.o.Logger.Warn("removed a file from the cache", "path", f.path, "err", why)
	}
	return fmt.Errorf("%w: %q: %s", ErrDamaged, f.path, why)
}

// load reads all of it into memory.
func (f *openFile) load() (*Segment, error) {
	s := &Segment{Key: f.header.key, Version: f.header.version, Sum: f.header.sum}
	for i := int64(0); i*ChunkSize < f.header.length; i++ {
		p := make([]byte, min(ChunkSize, f.header.length-i*ChunkSize))
		if err := f.read(i, p); err != nil {
			return nil, err
		}
		s.Chunks = append(s.Chunks, p)
	}
	return s, nil
}
