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

// ErrSource is the error of a body whose file could not be read to its end. Errors other than
// ErrSource and ErrPanic are those of the connection.
var ErrSource = errors.New("cannot read what is to be sent")

// ErrPanic is the error of a body whose sending panicked.
var ErrPanic = errors.New("BUG: panic while sending")

// Piece is a range of the file with bytes in front of it, such as the head of a multipart part.
// Either may be empty.
type Piece struct {
	Head   []byte
	Offset int64 // in the file
	Length int64
}

// Body is the body of a response, made of pieces of one file: WriteTo sends it, and Close ends it.
// No byte outside the pieces is read.
//
// Chunks in a file are sent by sendfile(2) to a TCP connection without TLS. All others are written
// from memory.
type Body struct {
	Conn   *Conn        // destination of the bytes; nil = only the writer of WriteTo
	Direct bool         // Conn may be written to directly: there is no TLS connection above it
	File   content.File // nil when the pieces have heads only
	Pieces []Piece
	// DropBehind lets the kernel forget the file's pages when they are sent, so that a huge
	// transfer does not push out pages that are used often.
	DropBehind bool
	Limit      Limit // bound on the rate
	// Done is called once, by Close.
	Done func(Result)

	piece      int           // index of the current piece
	pos        int64         // in the current piece, its head included
	chunk      content.Chunk // the next available bytes
	noSendfile bool          // the kernel cannot send from the file
	askedAgain int64         // value of result.Sent, plus one, at the last failure after which At was called again
	allowed    int64         // bytes that Limit allows to send now
	limited    bool          // Limit has allowed a slice
	result     Result

	w io.Writer // of WriteTo
	f Flusher   // w if it buffers, else nil
}

// Result describes how a body was sent.
type Result struct {
	Sent       int64     // bytes of the body that were written to the socket
	BySendfile int64     // of these, sent by sendfile(2)
	FirstByte  time.Time // time of sending the head and the first bytes; zero = not before the end of the body
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

// left returns the number of bytes of the body that were not sent yet.
func (b *Body) left() int64 {
	n := -b.pos
	for _, p := range b.Pieces[b.piece:] {
		n += int64(len(p.Head)) + p.Length
	}
	return n
}

// corkedPieces is the least number of pieces of a corked body. Without a cork, the end of each
// piece would end a packet.
const corkedPieces = 3

// Flusher is a writer with a buffer. That of an HTTP/1 response holds its head.
type Flusher interface {
	io.Writer
	Flush() error
	Buffered() int // bytes in the buffer, which begin the next TLS record; used with a Conn only
}

// WriteTo sends the body. A buffering w is flushed together with the first bytes of the file, if
// possible in one packet, and after each chunk, since the next one may be late. A panic, which is a
// bug, becomes an error for Done.
func (b *Body) WriteTo(w io.Writer) (n int64, err error) {
	defer func() {
		if p := recover(); p != nil {
			panics.Report(p, "sending")
			err = fmt.Errorf("%w: %v", ErrPanic, p)
		}
		n, b.result.Err = b.result.Sent, err
	}()
	b.w = w
	b.f, _ = w.(Flusher)
	if b.Conn != nil {
		b.Conn.pages.next = -1
	}
	if len(b.Pieces) >= corkedPieces && b.isDirect() && b.Conn.tcp && b.Limit.Rate <= 0 {
		b.Conn.cork(true)
		defer func() {
			if err == nil {
				err = b.f.Flush() // the end of the last piece
			}
			b.Conn.cork(false)
		}()
	}
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
			if b.allowed <= 0 {
				b.allowed = b.awaitLimit()
			}
			err = b.send()
		}
		if err != nil {
			return 0, err
		}
	}
}

// next sets chunk to the next bytes of the body. head is true for the head of a piece. The error is
// io.EOF after the last piece.
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
			if b.pos > int64(len(p.Head)) { // only the first chunk is certain to be there: At may wait for others
				b.detach()
			}
			if b.chunk, err = b.File.At(p.Offset+in, p.Length-in); err != nil {
				err = fmt.Errorf("%w: %w", ErrSource, err)
			}
		}
		return false, err
	}
	return false, io.EOF
}

// detach calls Detach of the connection, since the calling goroutine may take long.
func (b *Body) detach() {
	if b.Conn != nil {
		b.Conn.detach()
	}
}

// passed moves the position by n bytes of the chunk, which were sent.
func (b *Body) passed(n int64) {
	b.pos += n
	b.chunk = b.chunk.Behind(n)
	b.result.Sent += n
	b.allowed -= n
}

// write writes bytes of the chunk.
func (b *Body) write(w io.Writer, p []byte) error {
	n, err := w.Write(p)
	b.passed(int64(n))
	return err
}

// isDirect reports whether bytes may bypass the writer.
func (b *Body) isDirect() bool { return b.Direct && b.Conn != nil && b.f != nil }

// send sends bytes of the chunk, by sendfile if possible, or by a copy.
func (b *Body) send() error {
	switch {
	case b.chunk.File != nil && b.isDirect() && b.Conn.tcp && !b.noSendfile:
		return b.sendFile()
	case b.chunk.Bytes != nil:
		return b.sendBytes(b.chunk.Bytes[:min(int64(len(b.chunk.Bytes)), b.allowed)])
	}
	return b.copyOut()
}

// sendFile sends the chunk after the buffered bytes.
func (b *Body) sendFile() error {
	b.Conn.more.Store(true)
	err := b.f.Flush()
	b.Conn.more.Store(false)
	b.markFirst()
	if err != nil {
		return err
	}
	b.Conn.pages.drop, b.Conn.pages.resident, b.Conn.pages.guarded = b.DropBehind, b.chunk.Resident, b.chunk.Guarded
	b.Conn.source = b.chunk.File
	n, err := b.Conn.SendFile(int(b.chunk.File.Fd()), b.chunk.Offset, min(b.chunk.Length, b.allowed))
	b.Conn.source = nil
	b.passed(n)
	b.result.BySendfile += n
	switch {
	case !errors.Is(err, errNoSendfile):
		return err
	case b.chunk.Guarded && b.chunk.Length > 0: // not in the page cache now
		return b.copyOut()
	}
	b.noSendfile = true
	return nil
}

// sendBytes sends bytes after the buffered ones, if possible without a copy into the buffer.
func (b *Body) sendBytes(p []byte) (err error) {
	defer b.markFirst()
	if !b.isDirect() {
		return b.sendBuffered(p)
	}
	b.Conn.last = b.Conn.last && int64(len(p)) == b.left() // else the next bytes may be late
	b.Conn.behind = p
	err = b.f.Flush()
	n := len(p) - len(b.Conn.behind)
	b.Conn.behind = nil
	b.passed(int64(n))
	if err != nil || n == len(p) {
		return err
	}
	return b.write(b.Conn, p[n:]) // the buffer was empty
}

// sendBuffered sends bytes by the writer.
func (b *Body) sendBuffered(p []byte) (err error) {
	if b.f == nil {
		return b.write(b.w, p)
	}
	n := 0
	if b.Conn != nil {
		n, err = b.Conn.WriteRecords(b.w, b.f.Buffered(), p)
	} else {
		n, err = b.w.Write(p)
	}
	b.passed(int64(n))
	if err != nil {
		return err
	}
	return b.f.Flush()
}

// Roomer is a writer that predicts the number of bytes that it can take soon. The writer of a Body
// without a Conn may be one.
type Roomer interface {
	// Room returns the size of the next write in bytes.
	Room() int
}

// buffers holds the buffers of copies, and smallBuffers those of at most smallChunk bytes.
var (
	buffers      = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallChunk); return &b }}
)

const smallChunk = minRoom

// held counts the buffers in use.
var held atomic.Int64

// copyOut loads a buffer of bytes that are not in memory, and sends them. It takes the buffer once
// the socket accepts bytes.
func (b *Body) copyOut() (err error) {
	size := chunk
	if b.Conn != nil {
		if size, err = b.Conn.waitRoom(); err != nil {
			return err
		}
	} else if r, ok := b.w.(Roomer); ok {
		size = min(r.Room(), chunk)
	}
	pool := &buffers
	if size <= smallChunk {
		pool = &smallBuffers
	}
	buf := pool.Get().(*[]byte)
	held.Add(1)
	defer func() {
		held.Add(-1)
		pool.Put(buf)
	}()
	b.detach()
	n, err := b.chunk.Load((*buf)[:min(int64(size), b.allowed)])
	if n == 0 && b.chunk.Guarded && b.askedAgain <= b.result.Sent {
		b.chunk, b.askedAgain = content.Chunk{}, b.result.Sent+1 // At returns these bytes from another place
		return nil
	}
	if n == 0 {
		return fmt.Errorf("%w: %w", ErrSource, err)
	}
	return b.sendBytes((*buf)[:n]) // an error after these bytes recurs at the next load
}

func (b *Body) markFirst() {
	if b.result.FirstByte.IsZero() {
		b.result.FirstByte = time.Now()
	}
}

// Fail sets the error for Done of a body that is not sent.
func (b *Body) Fail(err error) { b.result.Err = err }

// Close calls Done, which closes the file. Further calls have no effect. A panic in Done is
// contained.
func (b *Body) Close() {
	if done := b.Done; done != nil {
		b.Done = nil
		defer panics.Contain("ending a response")
		done(b.result)
	}
}
