package content

import "io"

// File is the content of one file, wherever it is: of a store, a plain file or a trunk slot; on
// another host, in a cache or coming from there.
type File interface {
	// At waits for bytes of the file from an offset on, and gives at least one and at most limit
	// (more than 0) of them. A reader asks for limit bytes that it means to read, and goes on with
	// the first byte that it was not given: nothing further is fetched. The chunk is good until the
	// next call.
	At(offset, limit int64) (Chunk, error)
}

// Descriptor is a file that is open for any number of readers, each at an offset of its own.
type Descriptor interface {
	io.ReaderAt
	Fd() uintptr
}

// Chunk is the next part of a file, and where it is: in memory, in an open file, or on its way
// here.
type Chunk struct {
	Bytes  []byte     // not to be changed; nil = it is in no memory
	File   Descriptor // nil = it is in no open file
	Stream io.Reader  // that sends it, where it is in neither
	Offset int64      // in File
	Length int64
	// Resident: File is in memory (memfd_create(2)), so that reading it never waits for a disk.
	Resident bool
}

// InMemory is the chunk of these bytes.
func InMemory(b []byte) Chunk { return Chunk{Bytes: b, Length: int64(len(b))} }

// Load copies the first bytes of the chunk to p. Fewer than p has room for, or the chunk has, come
// with an error, io.ErrUnexpectedEOF where the file has ended before; but a stream gives what it
// has, at least one byte.
func (c Chunk) Load(p []byte) (n int, err error) {
	p = p[:min(int64(len(p)), c.Length)]
	switch {
	case c.Bytes != nil:
		n = copy(p, c.Bytes)
	case c.File != nil:
		n, err = c.File.ReadAt(p, c.Offset)
	default:
		for n == 0 && err == nil {
			n, err = c.Stream.Read(p)
		}
		p = p[:n] // an error comes again, without bytes
	}
	switch {
	case n > 0 && n == len(p):
		return n, nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Behind is the chunk without its first n bytes. Those of a stream must have been loaded.
func (c Chunk) Behind(n int64) Chunk {
	if c.Bytes != nil {
		c.Bytes = c.Bytes[n:]
	}
	c.Offset, c.Length = c.Offset+n, c.Length-n
	return c
}
