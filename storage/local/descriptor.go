package local

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

// inode identifies a file on disk.
type inode struct{ dev, ino uint64 }

// identity distinguishes a file on disk from earlier and later files of the same name, and its
// versions from each other.
type identity struct {
	inode
	links        uint64 // hard links; 0 when the file has been deleted
	mode         uint32
	size         int64
	mtime, ctime unix.Timespec
}

func identityOf(st *unix.Stat_t) identity {
	return identity{inode: inode{uint64(st.Dev), st.Ino}, links: uint64(st.Nlink), mode: st.Mode, size: st.Size,
		mtime: st.Mtim, ctime: st.Ctim}
}

func (i *identity) regular() bool { return i.mode&unix.S_IFMT == unix.S_IFREG }

// status is the result of a system call that returns the state of a file.
type status struct {
	identity
	err error
}

func fstat(fd int) status {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return status{identityOf(&st), err}
}

// descriptor is a file on disk, open for reading.
type descriptor struct {
	fd    int
	count *atomic.Int64 // of all open descriptors of the Store
	disk  *disk
	name  string       // of the file below its data folder
	refs  atomic.Int64 // one for the File, and one for each running operation; at 0 fd is closed
}

var (
	_ content.Descriptor = (*descriptor)(nil)
	_ content.Awaiter    = (*descriptor)(nil)
)

// newDescriptor takes over fd.
func newDescriptor(fd int, count *atomic.Int64, on *disk, name string) *descriptor {
	count.Add(1)
	d := &descriptor{fd: fd, count: count, disk: on, name: name}
	d.refs.Store(1)
	return d
}

func (d *descriptor) stat() (identity, error) {
	if d.disk.onHost {
		s := fstat(d.fd)
		return s.identity, s.err
	}
	return d.awaitStat()
}

// awaitStat is stat for a disk of another host.
func (d *descriptor) awaitStat() (identity, error) {
	s, err := await(d.disk, d, d.name, diskTime, func() status { return fstat(d.fd) }, func(status) {})
	if err != nil {
		return identity{}, err
	}
	return s.identity, s.err
}

// Fd implements content.Descriptor.
func (d *descriptor) Fd() uintptr { return uintptr(d.fd) }

// ReadAt implements io.ReaderAt, in the middle of a response.
func (d *descriptor) ReadAt(p []byte, off int64) (int, error) {
	n, err := d.pread(p, off, bodyTime)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// readSize is the length of one read that waits for the disk.
const readSize = 64 << 10

// readBuffers hold the results of reads, since a late one must not reach the memory of a request.
var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// readResult is the result of a read in a buffer.
type readResult struct {
	buf *[readSize]byte
	n   int
	err error
}

func (r readResult) free() { readBuffers.Put(r.buf) }

// pread is sys.Pread with a limit for each wait.
func (d *descriptor) pread(p []byte, off int64, limit time.Duration) (int, error) {
	n, err := sys.PreadNoWait(d.fd, p, off)
	if n == len(p) {
		return n, nil
	}
	if err == unix.EOPNOTSUPP && d.disk.onHost {
		return sys.Pread(d.fd, p, off)
	}
	for n < len(p) {
		r, err := d.awaitRead(min(len(p)-n, readSize), off+int64(n), limit)
		if err != nil {
			return n, err
		}
		n += copy(p[n:], r.buf[:r.n])
		r.free()
		if r.err != nil || r.n == 0 {
			return n, r.err
		}
	}
	return n, nil
}

// awaitRead is one read of pread.
func (d *descriptor) awaitRead(length int, off int64, limit time.Duration) (readResult, error) {
	return await(d.disk, d, d.name, limit, func() readResult {
		buf := readBuffers.Get().(*[readSize]byte)
		n, err := sys.Retry(func() (int, error) { return unix.Pread(d.fd, buf[:length], off) })
		return readResult{buf, max(n, 0), err}
	}, readResult.free)
}

// Await implements content.Awaiter.
func (d *descriptor) Await(off, length int64, limit time.Duration) error {
	var b [1]byte
	if n, err := sys.PreadNoWait(d.fd, b[:], off+length-1); n == 1 || err == unix.EOPNOTSUPP && d.disk.onHost {
		return nil
	}
	failed, err := await(d.disk, d, d.name, limit, func() error { return d.touch(off, length) }, func(error) {})
	switch {
	case err != nil:
		return err
	case failed != nil:
		return fmt.Errorf("%w: cannot read %q: %w", ErrUnavailable, d.name, failed)
	}
	return nil
}

// touch reads a range into the memory of the kernel, and waits for its ends.
func (d *descriptor) touch(off, length int64) error {
	var b [1]byte
	_ = unix.Fadvise(d.fd, off, length, unix.FADV_WILLNEED) // advice only
	for _, at := range [...]int64{off, off + length - 1} {
		if _, err := sys.Pread(d.fd, b[:], at); err != nil {
			return err
		}
	}
	return nil
}

// addRef adds a reference. The caller has one.
func (d *descriptor) addRef() { d.refs.Add(1) }

func (d *descriptor) dropRef() { _ = d.close() } // read only: nothing is lost

func (d *descriptor) close() error {
	if d.refs.Add(-1) != 0 {
		return nil
	}
	d.count.Add(-1)
	if err := unix.Close(d.fd); err != nil {
		return fmt.Errorf("cannot close file: %w", err)
	}
	return nil
}
