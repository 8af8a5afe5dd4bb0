package sendfile

import (
	"errors"
	"fmt"
	"io"
)

// Stretch is the next part of a stream: Bytes, or where Bytes is nil, Length bytes from Offset on
// in the file open as Fd.
type Stretch struct {
	Bytes    []byte
	Fd       int
	Resident bool // see Body
	Offset   int64
	Length   int64
}

// Stretcher is a stream that can give its bytes without copying them. A Body uses it where it can
// write to the connection itself.
type Stretcher interface {
	io.ReadCloser
	// Next waits for the next bytes and gives up to limit of them, which are good until the next
	// call of any method. It is io.EOF only behind the last byte.
	Next(limit int64) (Stretch, error)
}

// sendStretches sends what comes from streams that are Stretchers.
func (b *Body) sendStretches(w io.Writer, flusher interface{ Flush() error }) error {
	for ; b.piece < len(b.Pieces); b.piece, b.pos = b.piece+1, 0 {
		p := &b.Pieces[b.piece]
		if err := b.write(w, p.Head); err != nil {
			return err
		}
		if p.Length == 0 {
			continue // a stream that is open is the next one's
		}
		if err := b.sendStream(w, flusher, p.Offset, p.Length); err != nil {
			return err
		}
		if err := b.closeStream(); err != nil {
			return fmt.Errorf("%w: %w", ErrSource, err)
		}
	}
	return b.write(w, b.Tail)
}

// sendStream sends one piece's bytes.
func (b *Body) sendStream(w io.Writer, flusher interface{ Flush() error }, offset, left int64) (err error) {
	if b.Stream == nil {
		if b.Stream, err = b.Open(offset, left); err != nil {
			return fmt.Errorf("%w: %w", ErrSource, err)
		}
	}
	stream, ok := b.Stream.(Stretcher)
	if !ok {
		return fmt.Errorf("%w: BUG: a %T among Stretchers", ErrSource, b.Stream)
	}
	for left > 0 {
		next, err := stream.Next(left)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrSource, err)
		}
		if next.Bytes != nil {
			err = b.sendBytes(flusher, next.Bytes)
		} else {
			err = b.sendFileStretch(flusher, next)
		}
		if err != nil {
			return err
		}
		left -= next.Length
	}
	return nil
}

// sendFileStretch sends a stretch of a file, also where the kernel cannot send from it.
func (b *Body) sendFileStretch(flusher interface{ Flush() error }, next Stretch) error {
	b.Resident = next.Resident
	n, err := b.sendFile(flusher, next.Fd, next.Offset, next.Length)
	if errors.Is(err, errNoSendfile) {
		err = b.copyFileStretch(next.Fd, next.Offset+n, next.Length-n)
	}
	return err
}

// copyFileStretch is for files that the kernel cannot send from.
func (b *Body) copyFileStretch(fd int, offset, left int64) error {
	for left > 0 {
		room, err := b.Conn.waitRoom()
		if err != nil {
			return err
		}
		n, err := b.copyOnce(fd, offset, min(left, int64(room)))
		if err != nil {
			return err
		}
		offset, left = offset+n, left-n
	}
	return nil
}

// copyOnce copies up to limit bytes.
func (b *Body) copyOnce(fd int, offset, limit int64) (int64, error) {
	buf := buffers.Get().(*[chunk]byte)
	held.Add(1)
	defer func() {
		held.Add(-1)
		buffers.Put(buf)
	}()
	n, err := pread(fd, buf[:limit], offset)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrSource, err)
	}
	return int64(n), b.write(b.Conn, buf[:n])
}
