package tier

import (
	"fmt"
	"io"
	"os"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

// openFile is the open file of a segment. It has any number of users.
type openFile struct {
	disk   *Disk
	file   *os.File
	path   string
	header header
	inode  uint64
	entry  *diskEntry // set by admit
	checks *checks    // set by admit
	users  int        // guarded by Disk.mu
}

// openSegment opens the file of a segment and checks its header. It may hang.
func openSegment(d *Disk, path string, key Key) (_ *openFile, err error) {
	file, err := d.root.Load().OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
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

// close closes the file in the background, since that may hang too.
func (f *openFile) close() {
	go func() { _ = f.disk.io.supervise("close", f.Close) }() // ends with the file; nothing was written
}

// Close implements io.Closer. It may hang.
func (f *openFile) Close() error { return f.file.Close() }

// Fd implements content.Descriptor.
func (f *openFile) Fd() uintptr { return f.file.Fd() }

// ReadAt implements content.Descriptor. The bytes come from the page cache, or within the bound of
// diskIO.
func (f *openFile) ReadAt(p []byte, offset int64) (int, error) {
	if n, err := sys.PreadNoWait(int(f.file.Fd()), p, offset); err == nil && n == len(p) {
		return n, nil
	}
	b, err := do(f.disk.io, "read", untilOff, func() ([]byte, error) { // p may be in use again when a late read ends
		b := make([]byte, len(p))
		n, err := f.file.ReadAt(b, offset)
		return b[:n], err
	})
	return copy(p, b), err
}

// removeReader removes a user. The last one closes the file.
func (f *openFile) removeReader() {
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

// at is View.At. It stops before the first chunk that must be checked, unless that is the chunk at
// the offset.
func (f *openFile) at(offset, limit int64) (content.Chunk, error) {
	first, end := offset/ChunkSize, min(f.header.length, offset+limit)
	right := f.checks.passed()
	for i := first + 1; i*ChunkSize < end; i++ {
		if !right.has(i) {
			end = i * ChunkSize
		}
	}
	if !right.has(first) {
		if err := f.check(first); err != nil {
			return content.Chunk{}, err
		}
	}
	return content.Chunk{File: f, Guarded: true, Offset: f.header.size + offset, Length: end - offset}, nil
}

// load reads the whole segment into memory.
func (f *openFile) load() (*Segment, error) {
	s := &Segment{Key: f.header.key, Version: f.header.version}
	for i := int64(0); i*ChunkSize < f.header.length; i++ {
		_, length := f.chunk(i)
		p := make([]byte, length) // not used again if the read is late
		if err := doOnly(f.disk.io, "load", readTime, func() error { return f.read(i, p) }); err != nil {
			return nil, err
		}
		s.Chunks = append(s.Chunks, p)
	}
	return s, nil
}
