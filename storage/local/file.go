package local

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
)

// File is an open file of a store: a plain file, or the content of one trunk slot. It is safe for
// concurrent use until Close. A File of a FileCache is shared with other callers, and its content
// may be in memory.
//
// Make a validator (ETag) from CRC32 and Created of the requested id and Size unless Mutable, else
// from Size and FileTime. If Content is a trunk slot, use the id of Content in place of FileTime,
// which does not depend on the content of the slot.
type File struct {
	disk       *descriptor // nil if the content is in memory
	body       []byte      // nil if the content is not in memory
	path       *storePath  // store path of the file; name is its name below data
	name       string
	seen       identity // state of the file on disk when base, size and mtime were read
	base       int64
	size       int64
	mtime      time.Time
	modTime    time.Time
	content    fdfs.FileID
	linked     bool
	mutable    bool
	attachment atomic.Pointer[any]
	slot       fdfs.SlotContent // of a trunk slot
	refs       atomic.Int64     // one for each Open, and one for the FileCache; at 0 disk is released

	cacheState
}

var _ content.File = (*File)(nil)
var _ io.Closer = (*File)(nil)

// of completes f as the result of opening id.
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

// InMemory reports whether the content is in memory. If it is, At may be called after Close.
func (f *File) InMemory() bool { return f.body != nil }

// Copied reports whether the content is that of a trunk slot, with a copy in memory that is valid
// until Close.
func (f *File) Copied() bool { return f.copied.Load() != nil }

// Check returns an error if the content of a trunk slot cannot be read from disk at an offset; nil
// for all other files, and for content in memory. The error is fdfs.ErrFileChanged if the slot was
// written to since it was checked. After an error the FileCache checks the File before it returns
// it again.
func (f *File) Check(offset int64) error {
	if f.content.Kind != fdfs.KindTrunk || f.body != nil || f.Copied() {
		return nil
	}
	err := f.slot.CheckAt(offset)
	if err != nil {
		f.Suspect()
	}
	return err
}

// At implements content.File. Chunks of an open file are valid until Close.
func (f *File) At(offset, limit int64) (content.Chunk, error) {
	limit = min(limit, f.size-offset)
	switch {
	case offset < 0 || limit <= 0:
		return content.Chunk{}, fmt.Errorf("cannot read %q from %d: %w", f.content, offset, io.ErrUnexpectedEOF)
	case f.body != nil:
		return content.InMemory(f.body[offset : offset+limit]), nil
	case f.content.Kind == fdfs.KindTrunk:
		return f.slotAt(offset, limit), nil
	case f.content.Kind == fdfs.KindAppender:
		return content.Chunk{Checked: (*versionReader)(f), Offset: offset, Length: limit}, nil
	case f.content.Kind == fdfs.KindSlave && limit <= slaveTail:
		return content.Chunk{Checked: (*versionReader)(f), Offset: offset, Length: limit}, nil
	case f.content.Kind == fdfs.KindSlave:
		limit -= slaveTail
	}
	return content.Chunk{File: f.disk, Offset: f.base + offset, Length: limit}, nil
}

// readPart is the most that ReadPart reads, in bytes.
const readPart = 256 << 10

// ReadPart reads up to len(p) bytes, and at least one, for a caller that another host can give the
// rest: a disk that does not respond is an error after 2 s, ErrUnavailable, as is one that fails.
// The error is fdfs.ErrFileChanged if the file has changed since Open.
func (f *File) ReadPart(p []byte, offset int64) (n int, err error) {
	c, err := f.At(offset, min(int64(len(p)), readPart))
	if err != nil {
		return 0, err
	}
	for _, source := range [...]any{c.File, c.Checked} {
		if disk, ok := source.(content.Awaiter); ok {
			if err := disk.Await(c.Offset, c.Length, diskTime); err != nil {
				return 0, err
			}
		}
	}
	switch n, err = c.Load(p); {
	case err == nil, errors.Is(err, fdfs.ErrFileChanged), errors.Is(err, ErrUnavailable):
		return n, err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return n, fmt.Errorf("%w: %q is shorter", fdfs.ErrFileChanged, f.content)
	}
	return n, fmt.Errorf("%w: cannot read %q: %w", ErrUnavailable, f.content, err)
}

// slotAt is At for a trunk slot: a chunk of the copy in memory, else one that is compared while it
// is read. A chunk ends at the end of a block, wherever it begins, so the next one begins with a
// block.
func (f *File) slotAt(offset, limit int64) content.Chunk {
	if c := f.copied.Load(); c != nil {
		return c.at(offset, limit)
	}
	const most = 16 * fdfs.SlotBlock
	return content.Chunk{Checked: &f.slot, Offset: offset, Length: min(limit, most-offset%most)}
}

// Base returns the offset of the content in the file on disk, in bytes: 0 for plain files, that
// behind the slot's header for trunk files.
func (f *File) Base() int64 { return f.base }

// Size returns the length of the content in bytes at the time of Open.
func (f *File) Size() int64 { return f.size }

// ModTime returns the time for Last-Modified: the creation time in the id for normal and trunk
// files and for links of these kinds, the modification time on disk for slaves and appenders.
func (f *File) ModTime() time.Time { return f.modTime }

// FileTime returns the modification time of the file on disk, with nanoseconds. The time of a trunk
// file does not depend on the content of one slot.
func (f *File) FileTime() time.Time { return f.mtime }

// Content returns the id of the file that the content belongs to: the requested one, or the target
// of the link. Its strings are valid as long as those of the id given to Open, and for a File of a
// FileCache until Close.
func (f *File) Content() fdfs.FileID { return f.content }

// Linked reports whether the file was reached through a symbolic link or a trunk slot of type 'L'.
func (f *File) Linked() bool { return f.linked }

// Mutable reports whether the content under this id may change: true for slaves, which may be
// deleted and uploaded again, for appenders, and for links to either.
func (f *File) Mutable() bool { return f.mutable }

// Attachment returns the value of the last Attach, or nil. A FileCache keeps it until the file
// changes.
func (f *File) Attachment() any {
	if p := f.attachment.Load(); p != nil {
		return *p
	}
	return nil
}

// Attach stores a value that was computed from the file for later callers. It may be called
// concurrently.
func (f *File) Attach(v any) { f.attachment.Store(&v) }

// retain adds a reference. The caller has one, or holds a lock that keeps one.
func (f *File) retain() *File {
	f.refs.Add(1)
	return f
}

// Close releases the file. Call it once for each Open.
func (f *File) Close() error {
	if f.refs.Add(-1) != 0 || f.disk == nil {
		return nil
	}
	f.copied.Load().free()
	return f.disk.close()
}
