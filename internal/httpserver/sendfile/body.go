package sendfile

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/process/panics"
)

// ErrSource is the error of a body whose file could not be read to its end; other errors are those
// of the client's connection.
var ErrSource = errors.New("cannot read what is to be sent")

// ErrPanic is the error of a body whose sending panicked.
var ErrPanic = errors.New("BUG: panic while sending")

// Piece is a range of the file with some bytes in front of it, as the head of a multipart part.
// Either may be empty.
type Piece struct {
	Head   []byte
	Offset int64 // in the file
	Length int64
}

// Body is an answer's body made of pieces of one file. It is an io.Reader, an io.WriterTo and an
// io.Closer; fasthttp uses WriteTo and then Close. No byte beyond the pieces is asked for.
//
// Chunks that are in a file are sent by sendfile(2) where the kernel can do that: to a TCP
// connection without TLS. All others are copied.
type Body struct {
	Conn   *Conn        // destination of the bytes; nil = only the writer is known
	Direct bool         // Conn may be written to directly, see Of
	File   content.File // nil when the pieces have heads only
	Pieces []Piece
	// DropBehind lets the kernel forget the file's pages when they are sent, so that a huge
	// transfer does not push out pages that are used often.
	DropBehind bool
	// Done is called once, by Close.
	Done func(Result)

	piece      int           // the one that is being sent
	pos        int64         // in it, its head included
	chunk      content.Chunk // the bytes from there on, as far as they are at hand
	noSendfile bool          // the kernel cannot send from the file
	result     Result

	w io.Writer // that WriteTo writes to
	f flusher   // the same where it buffers, else nil
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
	n := int64(0)
	for i := range b.Pieces {
		n += int64(len(b.Pieces[i].Head)) + b.Pieces[i].Length
	}
	return n
}

// SupportsBodyWriteTo tells fasthttp to call WriteTo.
func (b *Body) SupportsBodyWriteTo() bool { return true }

// flusher is a writer with a buffer; fasthttp's holds the answer's head when the body begins.
type flusher interface {
	io.Writer
	Flush() error
}

// WriteTo sends the body. When w buffers, it is flushed together with the first bytes of the file,
// in one packet where they fit, and after each chunk, as the next one may take its time. A panic,
// which is a bug, becomes an error: Done gets it and can log the request.
func (b *Body) WriteTo(w io.Writer) (n int64, err error) {
	defer func() {
		if p := recover(); p != nil {
			panics.Report(p, "sending")
			err = fmt.Errorf("%w: %v", ErrPanic, p)
		}
		n, b.result.Err = b.result.Sent, err
	}()
	b.w = w
	b.f, _ = w.(flusher)
	for {
		head, err := b.next()
		switch {
		case err == io.EOF:
			return 0, nil
		case err != nil:
			return 0, err
		case head:
			err = b.write(w, b.chunk.Bytes)
		default:
			err = b.send()
		}
		if err != nil {
			return 0, err
		}
	}
}

// next makes chunk the next bytes of the body. head tells that they are none of the file. The error
// is io.EOF behind the last piece.
func (b *Body) next() (head bool, err error) {
	for ; b.piece < len(b.Pieces); b.piece, b.pos = b.piece+1, 0 {
		p := &b.Pieces[b.piece]
		in := b.pos - int64(len(p.Head))
		switch {
		case in < 0:
			b.chunk = content.InMemory(p.Head[b.pos:])
			return true, nil
		case in == p.Length:
			continue
		case b.chunk.Length == 0:
			if b.chunk, err = b.File.At(p.Offset+in, p.Length-in); err != nil {
				err = fmt.Errorf("%w: %w", ErrSource, err)
			}
		}
		return false, err
	}
	return false, io.EOF
}

// passed goes on behind the first n bytes of the chunk.
func (b *Body) passed(n int64) {
	b.pos += n
	b.chunk = b.chunk.Behind(n)
	b.result.Sent += n
}

// write writes bytes of the chunk.
func (b *Body) write(w io.Writer, p []byte) error {
	n, err := w.Write(p)
	b.passed(int64(n))
	return err
}

// isDirect tells whether bytes may go to the connection without the writer.
func (b *Body) isDirect() bool { return b.Direct && b.Conn != nil && b.f != nil }

// send sends bytes of the chunk: by sendfile where the kernel can, else by copying them.
func (b *Body) send() error {
	switch {
	case b.chunk.File != nil && b.isDirect() && b.Conn.tcp && !b.noSendfile:
		return b.sendFile()
	case b.chunk.Bytes != nil:
		return b.sendBytes(b.chunk.Bytes)
	}
	return b.copyOut()
}

// sendFile sends the chunk behind what is buffered.
func (b *Body) sendFile() error {
	b.Conn.more = true
	err := b.f.Flush()
	b.Conn.more = false
	b.markFirst()
	if err != nil {
		return err
	}
	b.Conn.pages.drop, b.Conn.pages.resident = b.DropBehind, b.chunk.Resident
	n, err := b.Conn.SendFile(int(b.chunk.File.Fd()), b.chunk.Offset, b.chunk.Length)
	b.passed(n)
	b.result.BySendfile += n
	if errors.Is(err, errNoSendfile) {
		b.noSendfile, err = true, nil
	}
	return err
}

// sendBytes sends bytes behind what is buffered: where it can, without copying them into the
// buffer.
func (b *Body) sendBytes(p []byte) (err error) {
	defer b.markFirst()
	if !b.isDirect() {
		if err = b.write(b.w, p); err == nil && b.f != nil {
			err = b.f.Flush()
		}
		return err
	}
	b.Conn.behind = p
	err = b.f.Flush()
	n := len(p) - len(b.Conn.behind)
	b.Conn.behind = nil
	b.passed(int64(n))
	if err != nil || n == len(p) {
		return err
	}
	return b.write(b.Conn, p[n:]) // there was nothing to flush
}

// buffers are what bodies are copied through where sendfile cannot be used.
var buffers = sync.Pool{New: func() any { return new([chunk]byte) }}

// held counts the buffers in use.
var held atomic.Int64

// copyOut sends a buffer of bytes that are not in memory. It takes the buffer when the client takes
// bytes.
func (b *Body) copyOut() (err error) {
	size := chunk
	if b.Conn != nil {
		if size, err = b.Conn.waitRoom(); err != nil {
			return err
		}
	}
	buf := buffers.Get().(*[chunk]byte)
	held.Add(1)
	defer func() {
		held.Add(-1)
		buffers.Put(buf)
	}()
	n, err := b.chunk.Load(buf[:size])
	if n == 0 {
		return fmt.Errorf("%w: %w", ErrSource, err)
	}
	return b.sendBytes(buf[:n]) // what failed behind them fails again
}

func (b *Body) markFirst() {
	if b.result.FirstByte.IsZero() {
		b.result.FirstByte = time.Now()
	}
}

// Read copies the next bytes of the body out; io.EOF at its end, io.ErrUnexpectedEOF when the file
// is shorter than promised.
func (b *Body) Read(p []byte) (n int, err error) {
	if _, err = b.next(); err == nil {
		n, err = b.chunk.Load(p)
		b.passed(int64(n))
	}
	return n, err
}

// Close reports to Done, whose user closes the file. Further calls do nothing. A panic in Done is
// contained: nothing of fasthttp, which calls Close, would recover it.
func (b *Body) Close() error {
	if done := b.Done; done != nil {
		b.Done = nil
		defer panics.Contain("ending an answer")
		done(b.result)
	}
	return nil
}
