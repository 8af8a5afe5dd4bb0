package local

import (
	"fmt"
	"io"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// FastDFS changes the bytes of appenders in place, so a response could mix two versions under the
// ETag of the first one. Bytes of an appender are read into memory of the response, which later
// changes do not reach, and are sent only if the file was unchanged after that read. A slave is
// replaced as a whole, by a new file: sendfile(2) sends its bytes, except for the last ones of each
// requested part. These are read in the same way, in case another program has written to the file.

// slaveTail is the length in bytes of the end of a requested part of a slave that is read and not
// sent by sendfile(2).
const slaveTail = 16 << 10

// versionReader reads a File that may change in place.
type versionReader File

// Await implements content.Awaiter.
func (r *versionReader) Await(off, length int64, limit time.Duration) error {
	return r.disk.Await(off, length, limit)
}

// ReadAt implements io.ReaderAt. The error is fdfs.ErrFileChanged if the file has another size or
// modification time than at Open.
func (r *versionReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.disk.pread(p, off, bodyTime)
	if err != nil {
		return 0, fmt.Errorf("%w: cannot read %q: %w", ErrUnavailable, r.content, err)
	}
	seen, err := r.disk.stat() // after the read
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case seen.size != r.seen.size || seen.mtime != r.seen.mtime:
		return 0, fmt.Errorf("%w while it was sent", fdfs.ErrFileChanged)
	case n < len(p):
		return n, io.EOF
	}
	return n, nil
}
