package storage

import (
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/fdfs"

	"golang.org/x/sys/unix"
)

// File is an open file of a store: all of a plain file, or the content of one
// trunk slot. It is safe for concurrent use until Close. One that comes from a FileCache is
// shared with other callers, and its content may be in memory.
//
// A validator (ETag) for the bytes is made from CRC32, Size and Created of Content where
// Content().Immutable(), else from Size and FileTime. The id that was asked for will not do: of a link it
// describes the link.
type File struct {
	disk    *descriptor // nil when the content is in memory
	body    []byte      // nil when it is not
	path    *storePath  // with name: where it lies
	name    string
	seen    identity // of the file on disk, when base, size and mtime were taken
	base    int64
	size    int64
	mtime   time.Time
	modTime time.Time
	content fdfs.FileID
	linked  bool
	mutable bool
	memo    atomic.Pointer[any]
	refs    atomic.Int64 // one for each Open, and one for the FileCache; at 0 disk is released

	// What follows is the FileCache's.
	key     fileKey
	viaSlot bool                  // it was reached through a slot of type 'L'
	checked atomic.Int64          // when it was last found unchanged
	tried   atomic.Bool           // somebody puts the content in memory, or it cannot be
	written atomic.Int64          // the trunk file's modification time when a slot's content was checked
	wrong   atomic.Pointer[error] // the answer to Open where the content is not that of the id
}

var _ io.ReaderAt = (*File)(nil)
var _ io.Closer = (*File)(nil)

// of finishes f as the answer to the question for id.
func (f *File) of(id fdfs.FileID, linked bool) *File {
	f.key = fileKey{id.Group, id.Logic}
	f.linked = linked
	f.mutable = !id.Immutable() || !f.content.Immutable()
	f.modTime = f.mtime
	if id.Immutable() {
		f.modTime = time.Unix(id.Created, 0)
	}
	return f
}

// own gives f strings of its own instead of those of id, for which it was opened.
func (f *File) own(id fdfs.FileID) {
	id = id.Clone()
	f.key = fileKey{id.Group, id.Logic}
	if f.linked {
		return // the target's strings were read from the disk
	}
	f.content = id
	if id.Kind != fdfs.KindTrunk {
		f.name = id.DiskName()
	}
}

// Bytes is the whole content where it is in memory, else nil. It must not be changed, and stays good after Close.
func (f *File) Bytes() []byte { return f.body }

// Fd is the descriptor of the file on disk, open for reading; -1 where the content is in memory. Others may be reading from it: use
// it with explicit offsets only (pread, sendfile), between Base and Base+Size, and not after Close.
func (f *File) Fd() int {
	if f.disk == nil {
		return -1
	}
	return f.disk.fd
}

// Base is where in Fd the content begins, in bytes: 0 for plain files,
// behind the slot's header for trunk files.
func (f *File) Base() int64 { return f.base }

// Size is the length of the content in bytes, as it was at Open.
func (f *File) Size() int64 { return f.size }

// ModTime is the Last-Modified of the file: the creation time in the id for normal and trunk
// files and for links of these kinds, the time of the file on disk for slaves and appenders.
func (f *File) ModTime() time.Time { return f.modTime }

// FileTime is the modification time of the file on disk, with nanoseconds; of a
// trunk file it is that of the whole trunk file and says nothing about the content.
func (f *File) FileTime() time.Time { return f.mtime }

// Content is the id of the file whose bytes these are: the one that Open was asked for,
// or the one that it is a link to. Its strings are valid as long as those of the id given to Open,
// and for a File of a FileCache until Close.
func (f *File) Content() fdfs.FileID { return f.content }

// Linked reports whether the file was reached through a symbolic link or a trunk slot of type 'L'.
func (f *File) Linked() bool { return f.linked }

// Mutable reports whether the bytes under this id may change: those of slaves
// (deleted and uploaded again) and appenders, and of links to such.
func (f *File) Mutable() bool { return f.mutable }

// Described reports whether size and CRC32 of the id that Open was asked for are those
// of the content: true for normal and trunk files that are no links.
func (f *File) Described() bool { return !f.mutable && !f.linked }

// Memo is what SetMemo was given last, or nil. A FileCache keeps it for as long as the file does not change.
func (f *File) Memo() any {
	if p := f.memo.Load(); p != nil {
		return *p
	}
	return nil
}

// SetMemo keeps with the file what a user has worked out from it, for the next one. Several may do so at a time.
func (f *File) SetMemo(v any) { f.memo.Store(&v) }

// Suspect is called by a user who found that the bytes are not as they should be, because the file was cut or the disk fails: a
// FileCache looks at the file again before it hands it out.
func (f *File) Suspect() { f.checked.Store(longAgo) }

// longAgo is before any time on a FileCache's clock.
const longAgo = math.MinInt64 / 2

// ReadAt reads content as io.ReaderAt does; offset 0 is the first byte of the content, and
// nothing outside of it is read. A file that has become shorter since Open gives io.ErrUnexpectedEOF.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("cannot read %q: negative offset %d", f.content, off)
	}
	if off >= f.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), f.size-off)]
	n, err := f.readFull(want, off)
	switch {
	case err != nil:
		return n, err
	case n < len(want):
		return n, io.ErrUnexpectedEOF
	case n < len(p):
		return n, io.EOF
	}
	return n, nil
}

// readFull fills p, or as much of it as the file has.
func (f *File) readFull(p []byte, off int64) (n int, err error) {
	if f.body != nil {
		return copy(p, f.body[off:]), nil
	}
	for n < len(p) {
		m, err := unix.Pread(f.disk.fd, p[n:], f.base+off+int64(n))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return n, fmt.Errorf("cannot read %q: %w", f.content, err)
		case m == 0:
			return n, nil
		default:
			n += m
		}
	}
	return n, nil
}

// retain adds a reference; the caller has one, or makes sure that there is one.
func (f *File) retain() *File {
	f.refs.Add(1)
	return f
}

// Close gives the file back. It is called once for each Open.
func (f *File) Close() error {
	if f.refs.Add(-1) != 0 || f.disk == nil {
		return nil
	}
	return f.disk.release()
}
