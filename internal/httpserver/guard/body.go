package guard

import (
	"bytes"
	"strconv"

	"fastdfs-gateway/internal/httpserver/httprange"
)

// Bounds of chunked framing, in bytes.
const (
	maxSizeDigits = 16      // of one chunk size
	maxExtensions = 4 << 10 // of all chunk extensions of a body
	maxTrailer    = 8 << 10 // of the trailer section
	maxBodyLine   = 8 << 10 // of one line
)

// bodyKind is the kind of framing of a body (RFC 9112 section 6.3).
type bodyKind uint8

const (
	bodyNone    bodyKind = iota // no body
	bodyLength                  // by Content-Length
	bodyChunked                 // by chunked framing
)

// framing is the framing of a body, as the fields of its head define it.
type framing struct {
	kind   bodyKind
	length int64 // of bodyLength; math.MaxInt64 also for larger values

	hasLength bool // Content-Length seen
	codings   int  // members of Transfer-Encoding so far
	chunked   int  // position of the first chunked among the members, from 1; 0 = no chunked
}

// contentLength parses one Content-Length field (RFC 9110 section 8.6). A second field is rejected
// even with the same value: a proxy that merged two messages into one may have added it.
func (f *framing) contentLength(value []byte) error {
	if f.hasLength {
		return badRequest("more than one Content-Length field")
	}
	f.hasLength = true
	if len(value) == 0 {
		return badRequest("empty Content-Length")
	}
	var ok bool
	if f.length, ok = httprange.ParseNumber(value); !ok {
		return badRequest("Content-Length is not a number")
	}
	return nil
}

// transferEncoding parses one Transfer-Encoding field (RFC 9112 section 6.1). Several fields are
// one list. Members are bare tokens: chunked has no parameters, and no other coding is supported.
func (f *framing) transferEncoding(value []byte) error {
	for more := true; more; {
		var coding []byte
		more = bytes.IndexByte(value, ',') >= 0
		coding, value = cutList(value)
		if len(coding) == 0 {
			return badRequest("empty transfer coding")
		}
		for _, ch := range coding {
			if !isToken[ch] {
				return badRequest("invalid character in Transfer-Encoding")
			}
		}
		if f.codings++; f.chunked == 0 && equalFold(coding, "chunked") {
			f.chunked = f.codings
		}
	}
	return nil
}

// finish sets the kind of framing, and rejects ambiguous framing.
func (f *framing) finish(http10 bool) error {
	switch {
	case f.codings > 0 && f.hasLength:
		return badRequest("both Transfer-Encoding and Content-Length")
	case f.codings > 0 && http10:
		return badRequest("Transfer-Encoding in an HTTP/1.0 request")
	case f.chunked != f.codings:
		return badRequest("chunked is not the last transfer coding and there once")
	case f.codings > 1:
		return &Error{Status: 501, Reason: "unknown transfer coding"}
	case f.codings == 1:
		f.kind = bodyChunked
	case f.length > 0:
		f.kind = bodyLength
	}
	return nil
}

// discardBody reads and discards the body of the current request.
func (c *Conn) discardBody() error {
	switch f := &c.head.body; f.kind {
	case bodyLength:
		return c.discard(f.length)
	case bodyChunked:
		return c.discardChunks()
	}
	return nil
}

// discard reads and discards n bytes of the body.
func (c *Conn) discard(n int64) error {
	for {
		step := min(n, int64(c.w-c.r))
		c.r += int(step)
		if n -= step; n == 0 {
			return nil
		}
		if err := c.fill(); err != nil {
			return c.readFailed(err, "request body")
		}
	}
}

// chunkSize parses the line before the data of a chunk (RFC 9112 section 7.1): the size in
// hexadecimal digits, and extensions, which have no effect. It returns the number of digits; false
// for a malformed line.
//
//	chunk-size *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )
func chunkSize(line []byte) (digits int, ok bool) {
	for digits < len(line) && unhex(line[digits]) >= 0 {
		digits++
	}
	rest, ok := line[digits:], digits > 0
	for ok && len(rest) > 0 {
		rest, ok = cutExtension(rest)
	}
	return digits, ok
}

// cutExtension cuts one chunk extension off.
func cutExtension(b []byte) (rest []byte, ok bool) {
	if b, ok = cutByte(b, ';'); !ok {
		return nil, false
	}
	if b, ok = cutToken(b); !ok {
		return nil, false
	}
	value, hasValue := cutByte(b, '=')
	switch {
	case !hasValue:
		return b, true
	case len(value) > 0 && value[0] == '"':
		return cutQuoted(value)
	}
	return cutToken(value)
}

// cutByte cuts the character ch off, with the blanks around it.
func cutByte(b []byte, ch byte) (rest []byte, ok bool) {
	b = bytes.TrimLeft(b, " \t")
	if len(b) == 0 || b[0] != ch {
		return nil, false
	}
	return bytes.TrimLeft(b[1:], " \t"), true
}

// cutToken cuts a token of at least one character off.
func cutToken(b []byte) (rest []byte, ok bool) {
	n := 0
	for n < len(b) && isToken[b[n]] {
		n++
	}
	return b[n:], n > 0
}

// cutQuoted cuts off the quoted-string that b begins with (RFC 9110 section 5.6.4).
func cutQuoted(b []byte) (rest []byte, ok bool) {
	for n := 1; n < len(b); n++ {
		ch := b[n]
		if ch == '"' {
			return b[n+1:], true
		}
		if ch == '\\' { // escapes the next character
			if n++; n == len(b) {
				break
			}
			ch = b[n]
		}
		if ch < ' ' && ch != '\t' || ch == 0x7f {
			break
		}
	}
	return nil, false
}

// discardChunks reads and discards a body in chunked framing:
//
//	size [extensions] CR LF
//	size bytes        CR LF
//	...
//	"0" [extensions]  CR LF
//	field lines                the trailer section, mostly empty
//	CR LF
//
// A lone CR or LF is rejected, and so is a blank outside the grammar.
func (c *Conn) discardChunks() error {
	total, extensions := int64(0), 0
	for {
		line, err := c.bodyLine()
		if err != nil {
			return err
		}
		n, ok := chunkSize(line)
		if !ok {
			return badRequest("malformed chunk size or extension")
		}
		digits := line[:n]
		if len(digits) > maxSizeDigits {
			return badRequest("chunk size has too many digits")
		}
		if extensions += len(line) - len(digits); extensions > maxExtensions {
			return badRequest("chunk extensions are too long")
		}
		size, err := strconv.ParseInt(string(digits), 16, 64)
		if err != nil || size > maxDiscard-total {
			return errTooLarge()
		}
		if size == 0 {
			return c.discardTrailer()
		}
		total += size
		if err := c.discard(size); err != nil {
			return err
		}
		if line, err = c.bodyLine(); err != nil {
			return err
		}
		if len(line) > 0 {
			return badRequest("chunk is not ended by CR LF")
		}
	}
}

// discardTrailer reads and discards the trailer section. Its fields are checked like those of a
// head (RFC 9110 section 6.5.1).
func (c *Conn) discardTrailer() error {
	for size, fields := 0, 0; ; fields++ {
		line, err := c.bodyLine()
		if err != nil || len(line) == 0 {
			return err
		}
		if size += len(line); size > maxTrailer || fields == MaxFields {
			return &Error{Status: 431, Reason: "trailer section is too long"}
		}
		if n, err := fieldName(line); err != nil || !validValue(line[n:]) {
			return badRequest("malformed trailer section")
		}
	}
}

// bodyLine consumes a line of chunked framing and returns it without its CR LF. The line is valid
// until the next read.
func (c *Conn) bodyLine() ([]byte, error) {
	for {
		b := c.in.b[c.r:c.w]
		end := bytes.IndexByte(b, '\n')
		if end > maxBodyLine || end < 0 && len(b) > maxBodyLine {
			return nil, &Error{Status: 431, Reason: "line of a chunked body is too long"}
		}
		if end >= 0 {
			c.r += end + 1
			line, whole := bytes.CutSuffix(b[:end], []byte{'\r'})
			if !whole {
				return nil, badRequest("line of a chunked body ends in LF alone")
			}
			return line, nil
		}
		if err := c.fill(); err != nil {
			return nil, c.readFailed(err, "request body")
		}
	}
}
