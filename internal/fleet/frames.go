package fleet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"fastdfs-gateway/internal/cache"
)

// The body of an answer to another gateway is frames, so that an answer that was cut, on its way or by the death of its sender, never
// looks like one that has ended, and a sender that waits itself shows that it lives. All numbers are big endian.
//
//	offset  length  field
//	0       1       kind
//	1       4       N, length of what follows
//	5       N       by kind:
//
//	kind           N             content
//	'H' heartbeat  0
//	'V' version    25            once, before data and end:
//	                             0  8  size of the file in bytes
//	                             8  8  modification time in nanoseconds since 1970
//	                             16 4  CRC32 (IEEE) of the file
//	                             20 1  flags: 1 immutable, 2 linked
//	                             21 4  CRC32C of the 21 bytes before
//	'D' data       5..262148     0  4  CRC32C of the bytes; then up to 256 KiB of them
//	'E' end        8             number of bytes in all data frames; nothing follows
//	'X' error      1..513        0  1  code: 1 not here, 2 changed, 3 failed; then a text for the log; nothing follows
const (
	frameHead = 5

	kindHeartbeat = 'H'
	kindVersion   = 'V'
	kindData      = 'D'
	kindEnd       = 'E'
	kindError     = 'X'

	sizeVersion  = 25
	sizeEnd      = 8
	maxData      = 256 << 10
	maxErrorText = 512

	codeNotHere = 1
	codeChanged = 2
	codeFailed  = 3

	flagImmutable = 1
	flagLinked    = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFrame means that what came is not the format above.
var errFrame = errors.New("answer of another gateway cannot be understood")

// frameWriter writes frames.
type frameWriter struct {
	w    io.Writer
	sent uint64 // bytes of data
	head [frameHead + 4]byte
}

func (f *frameWriter) frame(kind byte, payload []byte) error {
	f.head[0] = kind
	binary.BigEndian.PutUint32(f.head[1:], uint32(len(payload)))
	if _, err := f.w.Write(f.head[:frameHead]); err != nil {
		return err
	}
	_, err := f.w.Write(payload)
	return err
}

func (f *frameWriter) heartbeat() error { return f.frame(kindHeartbeat, nil) }

func (f *frameWriter) version(v cache.Version) error {
	b := binary.BigEndian.AppendUint64(nil, uint64(v.Size))
	b = binary.BigEndian.AppendUint64(b, uint64(v.ModTime))
	b = binary.BigEndian.AppendUint32(b, v.CRC32)
	flags := byte(0)
	if v.Immutable {
		flags |= flagImmutable
	}
	if v.Linked {
		flags |= flagLinked
	}
	b = append(b, flags)
	return f.frame(kindVersion, binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)))
}

// data writes one frame; p has 1 to maxData bytes.
func (f *frameWriter) data(p []byte) error {
	f.head[0] = kindData
	binary.BigEndian.PutUint32(f.head[1:], uint32(4+len(p)))
	binary.BigEndian.PutUint32(f.head[frameHead:], crc32.Checksum(p, castagnoli))
	if _, err := f.w.Write(f.head[:]); err != nil {
		return err
	}
	f.sent += uint64(len(p))
	_, err := f.w.Write(p)
	return err
}

func (f *frameWriter) end() error {
	return f.frame(kindEnd, binary.BigEndian.AppendUint64(nil, f.sent))
}

func (f *frameWriter) fail(cause error) error {
	code := byte(codeFailed)
	switch {
	case errors.Is(cause, cache.ErrNotHere):
		code = codeNotHere
	case errors.Is(cause, cache.ErrChanged):
		code = codeChanged
	}
	text := cause.Error()
	return f.frame(kindError, append([]byte{code}, text[:min(len(text), maxErrorText)]...))
}

// frameReader reads frames and gives the data in them.
type frameReader struct {
	r    *bufio.Reader
	got  uint64 // bytes of data
	buf  []byte // of one frame; grows to what is needed
	data []byte // of the last frame, not read yet
	err  error  // how it has ended
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 32<<10)}
}

// next reads a frame that is not a heartbeat. Its payload is good until the next call.
func (f *frameReader) next() (kind byte, payload []byte, err error) {
	for {
		var head [frameHead]byte
		if _, err := io.ReadFull(f.r, head[:]); err != nil {
			return 0, nil, cut(err)
		}
		kind, n := head[0], binary.BigEndian.Uint32(head[1:])
		if !sizeAllowed(kind, n) {
			return 0, nil, fmt.Errorf("%w: frame of kind %q with %d bytes", errFrame, kind, n)
		}
		if kind == kindHeartbeat {
			continue
		}
		if cap(f.buf) < int(n) {
			f.buf = make([]byte, n)
		}
		payload := f.buf[:n]
		if _, err := io.ReadFull(f.r, payload); err != nil {
			return 0, nil, cut(err)
		}
		return kind, payload, nil
	}
}

// sizeAllowed tells whether a kind of frame may have this length.
func sizeAllowed(kind byte, n uint32) bool {
	switch kind {
	case kindHeartbeat:
		return n == 0
	case kindVersion:
		return n == sizeVersion
	case kindData:
		return n > 4 && n <= 4+maxData
	case kindEnd:
		return n == sizeEnd
	case kindError:
		return n >= 1 && n <= 1+maxErrorText
	}
	return false
}

// cut is the error for an answer that stops between or within frames: never io.EOF.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("answer of another gateway was cut: %w", err)
}

// version reads the first frame.
func (f *frameReader) version() (v cache.Version, err error) {
	kind, b, err := f.next()
	switch {
	case err != nil:
		return v, err
	case kind == kindError:
		return v, reported(b)
	case kind != kindVersion:
		return v, fmt.Errorf("%w: it begins with a frame of kind %q", errFrame, kind)
	case crc32.Checksum(b[:21], castagnoli) != binary.BigEndian.Uint32(b[21:]):
		return v, fmt.Errorf("%w: version was damaged on its way", errFrame)
	}
	v = cache.Version{
		Size: int64(binary.BigEndian.Uint64(b)), ModTime: int64(binary.BigEndian.Uint64(b[8:])), CRC32: binary.BigEndian.Uint32(b[16:]),
		Immutable: b[20]&flagImmutable != 0, Linked: b[20]&flagLinked != 0,
	}
	if v.Size < 0 || b[20] > flagImmutable|flagLinked {
		return v, fmt.Errorf("%w: version with a size of %d and flags %#x", errFrame, v.Size, b[20])
	}
	return v, nil
}

// Read implements io.Reader. It is io.EOF only behind the frame that says so.
func (f *frameReader) Read(p []byte) (int, error) {
	for len(f.data) == 0 && f.err == nil {
		f.err = f.more()
	}
	if len(f.data) == 0 {
		return 0, f.err
	}
	n := copy(p, f.data)
	f.data = f.data[n:]
	return n, nil
}

// more reads the next frame of data.
func (f *frameReader) more() error {
	kind, b, err := f.next()
	switch {
	case err != nil:
		return err
	case kind == kindError:
		return reported(b)
	case kind == kindEnd:
		if n := binary.BigEndian.Uint64(b); n != f.got {
			return fmt.Errorf("%w: it ends after %d bytes and says %d", errFrame, f.got, n)
		}
		return io.EOF
	case kind != kindData:
		return fmt.Errorf("%w: frame of kind %q between data", errFrame, kind)
	case crc32.Checksum(b[4:], castagnoli) != binary.BigEndian.Uint32(b):
		return fmt.Errorf("%w: data was damaged on its way", errFrame)
	}
	f.data = b[4:]
	f.got += uint64(len(f.data))
	return nil
}

// reported is the error that a frame of the other gateway's tells.
func reported(b []byte) error {
	kind := errPeerFailed
	switch b[0] {
	case codeNotHere:
		kind = cache.ErrNotHere
	case codeChanged:
		kind = cache.ErrChanged
	}
	return fmt.Errorf("%w: another gateway says: %q", kind, b[1:])
}

// errPeerFailed means that the other gateway could not go on.
var errPeerFailed = errors.New("reading from another gateway failed")
