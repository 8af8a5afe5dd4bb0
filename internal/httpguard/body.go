package httpguard

import (
	"bytes"
	"math"
)

// Bounds of chunked framing, in bytes of a whole body.
const (
	maxSizeDigits = 16      // of one chunk size
	maxExtensions = 4 << 10 // of all chunk extensions
	maxTrailer    = 8 << 10 // of the trailer section
)

// bodyKind is how the end of a body is found (RFC 9112 section 6.3).
type bodyKind uint8

const (
	bodyNone    bodyKind = iota // there is none
	bodyLength                  // by Content-Length
	bodyChunked                 // by chunked framing
)

// framing is the framing of the body by the fields of the head.
type framing struct {
	kind   bodyKind
	length int64 // of bodyLength; math.MaxInt64 stands for all that is larger

	hasLength, hasCoding bool // Content-Length, Transfer-Encoding seen
	chunked              bool // the last coding so far is chunked
	twice                bool // something came behind chunked
	other                bool // a coding besides chunked
}

// contentLength parses one Content-Length field (RFC 9110 section 8.6). A second one is refused
// even if it says the same: a proxy that merged two messages into one may have added it.
func (f *framing) contentLength(value []byte) error {
	if f.hasLength {
		return badRequest("more than one Content-Length field")
	}
	f.hasLength = true
	if len(value) == 0 {
		return badRequest("empty Content-Length")
	}
	for _, ch := range value {
		if !isDigit(ch) {
			return badRequest("Content-Length is not a number")
		}
		d := int64(ch - '0')
		if f.length > (math.MaxInt64-d)/10 {
			f.length = math.MaxInt64
		} else {
			f.length = 10*f.length + d
		}
	}
	return nil
}

// transferEncoding parses one Transfer-Encoding field (RFC 9112 section
// 6.1). Several fields are one list. Members are bare tokens here: chunked has
// no parameters, and nothing else is understood.
func (f *framing) transferEncoding(value []byte) error {
	f.hasCoding = true
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
		f.twice = f.twice || f.chunked
		f.chunked = equalFold(coding, "chunked")
		f.other = f.other || !f.chunked
	}
	return nil
}

// finish decides how the body is framed, or refuses what is ambiguous.
func (f *framing) finish(http10 bool) error {
	switch {
	case f.hasCoding && f.hasLength:
		return badRequest("both Transfer-Encoding and Content-Length")
	case f.hasCoding && http10:
		return badRequest("Transfer-Encoding in an HTTP/1.0 request")
	case f.hasCoding && f.twice:
		return badRequest("transfer coding behind chunked")
	case f.hasCoding && !f.chunked:
		return badRequest("last transfer coding is not chunked")
	case f.hasCoding && f.other:
		return &Error{Status: 501, Reason: "unknown transfer coding"}
	case f.hasCoding:
		f.kind = bodyChunked
	case f.length > 0:
		f.kind = bodyLength
	}
	return nil
}

// discardBody reads the body of the current request and throws it away.
func (c *Conn) discardBody() error {
	f := &c.head.body
	if f.kind == bodyNone {
		return nil
	}
	dec := chunkDecoder{maxBody: c.g.opts.MaxDiscard, maxFields: c.g.opts.MaxFields}
	for left := f.length; ; {
		var n int
		var done bool
		if f.kind == bodyLength {
			n = int(min(left, int64(c.w-c.r)))
			left -= int64(n)
			done = left == 0
		} else if c.r < c.w {
			var err error
			if n, done, err = dec.feed(c.in.b[c.r:c.w]); err != nil {
				return err
			}
		}
		c.r += n
		if done {
			return nil
		}
		if err := c.fill(); err != nil {
			return c.readFailed(err, "request body")
		}
	}
}
