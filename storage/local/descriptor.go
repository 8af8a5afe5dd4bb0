package local

import (
	"fmt"
	"io"
	"sync/atomic"

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

// descriptor is a file on disk, open for reading.
type descriptor struct {
	fd    int
	count *atomic.Int64 // of all open descriptors of the Store
}

// newDescriptor takes over fd.
func newDescriptor(fd int, count *atomic.Int64) *descriptor {
	count.Add(1)
	return &descriptor{fd, count}
}

func (d *descriptor) stat() (identity, error) {
	var st unix.Stat_t
	err := unix.Fstat(d.fd, &st)
	return identityOf(&st), err
}

// Fd implements content.Descriptor.
func (d *descriptor) Fd() uintptr { return uintptr(d.fd) }

// ReadAt implements io.ReaderAt.
func (d *descriptor) ReadAt(p []byte, off int64) (int, error) {
	n, err := sys.Pread(d.fd, p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (d *descriptor) close() error {
	d.count.Add(-1)
	if err := unix.Close(d.fd); err != nil {
		return fmt.Errorf("cannot close file: %w", err)
	}
	return nil
}
