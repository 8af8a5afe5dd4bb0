package storage

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// File is an open file of a store: all of a plain file, or the content of one
// trunk slot. It is safe for concurrent use until Close.
//
// A validator (ETag) for the bytes is made from CRC32, Size and Created of Content where
// Content().Immutable(), else from Size and FileTime. The id that was asked for will not do: of a link it
// describes the link.
type File struct {
	file    *os.File
	base    int64
	size    int64
	mtime   time.Time
	modTime time.Time
	content fdfs.FileID
	linked  bool
	mutable bool
	closed  atomic.Bool
}

var _ io.ReaderAt = (*File)(nil)
var _ io.Closer = (*File)(nil)

// of finishes f as the answer to the question for id.
func (f *File) of(id fdfs.FileID, linked bool) *File {
	f.linked = linked
	f.mutable = !id.Immutable() || !f.content.Immutable()
	f.modTime = f.mtime
	if id.Immutable() {
		f.modTime = time.Unix(id.Created, 0)
	}
	return f
}

// Fd is the descriptor of the file on disk, open for reading. Others may be reading from it: use
// it with explicit offsets only (pread, sendfile), between Base and Base+Size, and not after Close.
func (f *File) Fd() int { return int(f.file.Fd()) }

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
// or the one that it is a link to. Its strings are valid as long as those of the id given to Open.
func (f *File) Content() fdfs.FileID { return f.content }

// Linked reports whether the file was reached through a symbolic link or a trunk slot of type 'L'.
func (f *File) Linked() bool { return f.linked }

// Mutable reports whether the bytes under this id may change: those of slaves
// (deleted and uploaded again) and appenders, and of links to such.
func (f *File) Mutable() bool { return f.mutable }

// Described reports whether size and CRC32 of the id that Open was asked for are those
// of the content: true for normal and trunk files that are no links.
func (f *File) Described() bool { return !f.mutable && !f.linked }

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
	n, err := f.file.ReadAt(want, f.base+off)
	switch {
	case err == io.EOF && n < len(want):
		return n, io.ErrUnexpectedEOF
	case err != nil && err != io.EOF:
		return n, err
	case n < len(p):
		return n, io.EOF
	}
	return n, nil
}

// Close releases the file. Further calls do nothing.
func (f *File) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	return f.file.Close()
}
