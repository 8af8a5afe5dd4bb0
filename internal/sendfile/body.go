package sendfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/panics"

	"golang.org/x/sys/unix"
)

// Source is an open file. Any number of bodies may send from one descriptor at the same time.
type Source interface {
	// Fd returns the file descriptor, which stays open until Close and is used with explicit
	// offsets only.
	Fd() int
	// Close is called once, when the body is done with it.
	Close() error
}

// ErrSource is the error of a body whose file could not be read to its end; other errors are those
// of the client's connection.
var ErrSource = errors.New("cannot read what is to be sent")

// ErrPanic is the error of a body whose sending panicked.
var ErrPanic = errors.New("BUG: panic while sending")

// Piece is a stretch of the source with some bytes in front of it: the head of a multipart part, or
// nothing.
type Piece struct {
	Head   []byte
	Offset int64 // in the descriptor
	Length int64
}

// Body is an answer's body made of pieces of one file. It is an io.Reader, an io.WriterTo and an
// io.Closer; fasthttp uses WriteTo and then Close. No byte beyond the pieces is sent, so other
// slots of a trunk file stay private.
type Body struct {
	Conn   *Conn  // destination of the bytes; nil = only the writer is known
	Direct bool   // Conn may be written to directly, see Of
	Source Source // nil when the pieces have heads only, are in Memory, or come from Open
	// Memory is the file where it is in memory: pieces are stretches of it. It is not changed, and
	// may be shared with other bodies.
	Memory []byte
	// Open gives a stretch of a remote file. The stream must end in an error when it ends
	// early. It is used where there is no Source; Stream may hold the one for the first piece,
	// opened before.
	Open   func(offset, length int64) (io.ReadCloser, error)
	Stream io.ReadCloser
	Pieces []Piece
	Tail   []byte // behind the last piece
	// Resident says that the Source is a file in memory (memfd_create(2)): reading never waits for
	// a disk.
	Resident bool
	// DropBehind lets the kernel forget the file's pages when they are sent, so that a huge
	// transfer does not push out pages that are used often. It is for Source.
	DropBehind bool
	// Done is called once, by Close.
	Done func(Result)

	piece  int   // the one that Read is in
	pos    int64 // how far, its head included
	result Result
}

// Result describes how a body was sent.
type Result struct {
	Sent       int64     // bytes of the body that went to the socket
	BySendfile int64     // of these, how many by sendfile(2)
	FirstByte  time.Time // when the answer's head and first bytes left; zero if they never did
	Err        error     // cause of an early end
}

// Length returns the body's size in bytes.
func (b *Body) Length() int64 {
	n := int64(len(b.Tail))
	for i := range b.Pieces {
		n += int64(len(b.Pieces[i].Head)) + b.Pieces[i].Length
	}
	return n
}

// SupportsBodyWriteTo tells fasthttp to call WriteTo.
func (b *Body) SupportsBodyWriteTo() bool { return true }

// WriteTo sends the body. When w buffers (fasthttp's does, and holds the answer's head by now), it
// is flushed together with the first bytes of the file, in one packet where they fit. A panic,
// which is a bug, becomes an error: Done gets it and can log the request.
func (b *Body) WriteTo(w io.Writer) (n int64, err error) {
	defer func() {
		if p := recover(); p != nil {
			panics.Report(p, "sending")
			err = fmt.Errorf("%w: %v", ErrPanic, p)
		}
		n, b.result.Err = b.result.Sent, err
	}()
	flusher, ok := w.(interface{ Flush() error })
	if b.Source == nil && b.Open == nil {
		return 0, b.writeMemory(w, flusher)
	}
	if ok && b.Direct && b.Conn != nil && b.Conn.tcp && b.Source != nil {
		if err = b.sendPieces(w, flusher); !errors.Is(err, errNoSendfile) {
			return 0, err
		}
	}
	if _, stretches := b.Stream.(Stretcher); stretches && ok && b.Direct && b.Conn != nil && b.Conn.tcp {
		return 0, b.sendStretches(w, flusher)
	}
	return 0, b.copyChunks(w)
}

// sendPieces sends by sendfile. It keeps Read's position, so that copying can take over where the
// kernel cannot go on.
func (b *Body) sendPieces(w io.Writer, flusher interface{ Flush() error }) error {
	for ; b.piece < len(b.Pieces); b.piece, b.pos = b.piece+1, 0 {
		p := &b.Pieces[b.piece]
		if err := b.write(w, p.Head); err != nil {
			return err
		}
		if p.Length == 0 {
			continue
		}
		if _, err := b.sendFile(flusher, b.Source.Fd(), p.Offset, p.Length); err != nil {
			return err
		}
	}
	return b.write(w, b.Tail)
}

// writeMemory sends what is in memory. One piece, which is the usual case, goes out together with
// the answer's head without being copied into w's buffer.
func (b *Body) writeMemory(w io.Writer, flusher interface{ Flush() error }) error {
	for ; b.piece < len(b.Pieces); b.piece, b.pos = b.piece+1, 0 {
		p := &b.Pieces[b.piece]
		if err := b.write(w, p.Head); err != nil {
			return err
		}
		if p.Length == 0 {
			continue
		}
		data := b.Memory[p.Offset : p.Offset+p.Length]
		if flusher == nil || !b.Direct || b.Conn == nil || len(b.Pieces) > 1 || len(b.Tail) > 0 {
			err := b.write(w, data)
			b.markFirst()
			if err != nil {
				return err
			}
			continue
		}
		if err := b.sendBytes(flusher, data); err != nil {
			return err
		}
	}
	return b.write(w, b.Tail)
}

// sendBytes sends bytes together with what is buffered in front of them, without copying them.
func (b *Body) sendBytes(flusher interface{ Flush() error }, data []byte) error {
	b.Conn.behind = data
	err := flusher.Flush()
	n := len(data) - len(b.Conn.behind)
	b.Conn.behind = nil
	b.pos += int64(n)
	b.result.Sent += int64(n)
	b.markFirst()
	if err != nil || n == len(data) {
		return err
	}
	return b.write(b.Conn, data[n:]) // there was nothing to flush
}

// sendFile sends a stretch of a file behind what is buffered, by sendfile, and returns how much of
// it.
func (b *Body) sendFile(flusher interface{ Flush() error }, fd int, offset, length int64) (int64, error) {
	b.Conn.more = true
	err := flusher.Flush()
	b.Conn.more = false
	b.markFirst()
	if err != nil {
		return 0, err
	}
	b.Conn.pages.drop, b.Conn.pages.resident = b.DropBehind, b.Resident
	n, err := b.Conn.SendFile(fd, offset, length)
	b.pos += n
	b.result.Sent += n
	b.result.BySendfile += n
	return n, err
}

func (b *Body) markFirst() {
	if b.result.FirstByte.IsZero() {
		b.result.FirstByte = time.Now()
	}
}

func (b *Body) write(w io.Writer, p []byte) error {
	n, err := w.Write(p)
	b.pos += int64(n)
	b.result.Sent += int64(n)
	return err
}

// Read copies the next bytes of the body out; io.EOF at its end, io.ErrUnexpectedEOF when the file
// is shorter than promised.
func (b *Body) Read(p []byte) (int, error) {
	for b.piece < len(b.Pieces) {
		piece := &b.Pieces[b.piece]
		head := int64(len(piece.Head))
		switch {
		case b.pos < head:
			n := copy(p, piece.Head[b.pos:])
			b.pos += int64(n)
			return n, nil
		case b.pos < head+piece.Length:
			left := head + piece.Length - b.pos
			n, err := b.readFile(p[:min(int64(len(p)), left)], piece.Offset+b.pos-head, left)
			b.pos += int64(n)
			return n, err
		}
		b.piece, b.pos = b.piece+1, 0
		if piece.Length == 0 {
			continue // a stream that is open is the next one's
		}
		if err := b.closeStream(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.Tail[min(b.pos, int64(len(b.Tail))):])
	b.pos += int64(n)
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// readFile reads from the file, wherever it is. left is how much of the piece follows.
func (b *Body) readFile(p []byte, offset, left int64) (n int, err error) {
	switch {
	case b.Open != nil:
	case b.Source != nil:
		return pread(b.Source.Fd(), p, offset)
	default:
		return copy(p, b.Memory[offset:]), nil
	}
	if b.Stream == nil {
		if b.Stream, err = b.Open(offset, left); err != nil {
			return 0, err
		}
	}
	for n == 0 && err == nil {
		n, err = b.Stream.Read(p)
	}
	if n > 0 && (err == io.EOF || int64(n) == left) {
		err = nil // whether it was all shows in the length
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *Body) closeStream() error {
	stream := b.Stream
	b.Stream = nil
	if stream == nil {
		return nil
	}
	return stream.Close()
}

// pread reads at least one byte at an offset of the descriptor; at the file's end that is
// io.ErrUnexpectedEOF.
func pread(fd int, p []byte, offset int64) (int, error) {
	for {
		n, err := unix.Pread(fd, p, offset)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, os.NewSyscallError("pread", err)
		case n == 0 && len(p) > 0:
			return 0, io.ErrUnexpectedEOF
		default:
			return n, nil
		}
	}
}

// Close releases the source and reports to Done. Further calls do nothing.
func (b *Body) Close() error {
	source, done := b.Source, b.Done
	b.Source, b.Done = nil, nil
	var err error
	if source != nil {
		err = source.Close()
	}
	err = errors.Join(err, b.closeStream())
	if done != nil {
		done(b.result)
	}
	return err
}

// buffers are what bodies are copied through where sendfile cannot be used.
var buffers = sync.Pool{New: func() any { return new([chunk]byte) }}

// held counts the buffers in use.
var held atomic.Int64

func (b *Body) copyChunks(w io.Writer) error {
	for {
		size := chunk
		if b.Conn != nil {
			var err error
			if size, err = b.Conn.waitRoom(); err != nil {
				return err
			}
		}
		if err := b.copyChunk(w, size); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

// copyChunk copies up to size bytes; io.EOF at the end of the body.
func (b *Body) copyChunk(w io.Writer, size int) error {
	buf := buffers.Get().(*[chunk]byte)
	held.Add(1)
	defer func() {
		held.Add(-1)
		buffers.Put(buf)
	}()
	n, err := b.Read(buf[:size])
	if err == io.EOF {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSource, err)
	}
	n, err = w.Write(buf[:n])
	b.result.Sent += int64(n)
	if flusher, ok := w.(interface{ Flush() error }); ok && err == nil && b.Open != nil {
		err = flusher.Flush() // what comes next may take its time
	}
	b.markFirst()
	return err
}
