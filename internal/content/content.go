package content

import (
	"io"
	"time"
)

// File is the content of one file: a plain file or a trunk slot of a local store, or a file of
// another host, cached or being fetched.
type File interface {
	// At waits for bytes of the file at an offset, and returns at least one and at most limit (more
	// than 0) of them. limit is the number of bytes that the reader will read: no further bytes are
	// fetched. The reader continues after the last byte that it got. The chunk is valid until the
	// next call.
	At(offset, limit int64) (Chunk, error)
}

// Descriptor is an open file with any number of readers, each at its own offset.
type Descriptor interface {
	io.ReaderAt
	Fd() uintptr
}

// Awaiter is a Descriptor, or the Checked of a Chunk, whose bytes may be on a disk that hangs.
type Awaiter interface {
	// Await waits until bytes can be read without a wait for the disk, for about a time limit. An
	// error means that they cannot be read.
	Await(offset, length int64, limit time.Duration) error
}

// Chunk is the next part of a file: in memory, in an open file, or in a stream.
type Chunk struct {
	Bytes   []byte      // read-only; nil = not in memory
	File    Descriptor  // nil = not in an open file
	Checked io.ReaderAt // an open file that may change: ReadAt compares the bytes before it returns them
	Stream  io.Reader   // set if Bytes, File and Checked are nil
	Offset  int64       // in File or Checked
	Length  int64
	// Resident: File is in memory (memfd_create(2)), so reads of it never wait for a disk.
	Resident bool
	// Guarded: a disk that hangs fails ReadAt of File, but would hold sendfile(2), which is for
	// bytes in the page cache only. After such a failure File.At has the bytes from another place.
	Guarded bool
}

// InMemory returns the chunk of these bytes.
func InMemory(b []byte) Chunk { return Chunk{Bytes: b, Length: int64(len(b))} }

// Load copies the first bytes of the chunk to p. If it copies fewer than both the length of p and
// that of the chunk, it returns an error: io.ErrUnexpectedEOF if the file is shorter. A stream may
// return fewer bytes without an error, but at least one.
func (c Chunk) Load(p []byte) (n int, err error) {
	p = p[:min(int64(len(p)), c.Length)]
	switch {
	case c.Bytes != nil:
		n = copy(p, c.Bytes)
	case c.File != nil:
		n, err = c.File.ReadAt(p, c.Offset)
	case c.Checked != nil:
		n, err = c.Checked.ReadAt(p, c.Offset)
	default:
		for n == 0 && err == nil {
			n, err = c.Stream.Read(p)
		}
		p = p[:n] // the next call returns the error again, without bytes
	}
	switch {
	case n > 0 && n == len(p):
		return n, nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Behind returns the chunk without its first n bytes. Those of a stream must have been read by
// Load.
func (c Chunk) Behind(n int64) Chunk {
	if c.Bytes != nil {
		c.Bytes = c.Bytes[n:]
	}
	c.Offset, c.Length = c.Offset+n, c.Length-n
	return c
}
