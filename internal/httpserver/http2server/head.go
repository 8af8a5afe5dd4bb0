package http2server

import (
	"encoding/binary"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// Heads of responses are encoded without a dynamic table (RFC 7541 section 6.2.2): a table would
// have to be kept for each connection, and most values differ from file to file. Each encoded block
// begins with an update of the size of the table to 0 (section 6.3), which blockOf removes from the
// blocks that do not need it.

// nameIndex holds the indexes of names in the static table (RFC 7541 appendix A). The names have
// the form in which handlers write them.
var nameIndex = map[string]byte{
	"Accept-Ranges": 18, "Access-Control-Allow-Origin": 20, "Age": 21, "Allow": 22, "Cache-Control": 24,
	"Content-Disposition": 25, "Content-Encoding": 26, "Content-Language": 27, "Content-Location": 29,
	"Content-Range": 30, "Content-Type": 31, "ETag": 34, "Etag": 34, "Expires": 36, "Last-Modified": 44, "Link": 45,
	"Location": 46, "Retry-After": 53, "Server": 54, "Set-Cookie": 55, "Strict-Transport-Security": 56, "Vary": 59,
	"Via": 60, "WWW-Authenticate": 61, "Www-Authenticate": 61,
}

const (
	indexStatus        = 8 // :status with the value 200; the six entries after it have other values
	indexContentLength = 28
	indexDate          = 33

	tableSizeZero = 0x20 // an update of the size of the table
)

// blocks holds buffers for header blocks.
var blocks = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

// blockOf returns an encoded block in the form in which it is sent. The update of the size of the
// table is required in the first block after the client has reduced the size that it allows (RFC
// 9113 section 4.3.1).
func (c *conn) blockOf(encoded []byte) []byte {
	if !c.tableReduced {
		return encoded[1:]
	}
	c.tableReduced = false
	return encoded
}

// appendHead adds the HEADERS of a response, and CONTINUATIONs if the block is too long for one
// frame.
func (c *conn) appendHead(id uint32, encoded []byte, end bool) {
	block := c.blockOf(encoded)
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if end {
		flags = http2.FlagHeadersEndStream
	}
	for first := true; first || len(block) > 0; first = false {
		part := block[:min(len(block), maxFrame)]
		if block = block[len(part):]; len(block) == 0 {
			flags |= http2.FlagHeadersEndHeaders // CONTINUATION has the same flag
		}
		c.appendFrameHead(kind, flags, id, len(part))
		*c.out = append(*c.out, part...)
		c.countResponse(frameHead + int64(len(part)))
		kind, flags = http2.FrameContinuation, 0
	}
	c.budget.sent()
}

// appendContinue adds an interim response (RFC 9110 section 15.2.1).
func (c *conn) appendContinue(id uint32) {
	c.appendFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, id, c.blockOf(appendStatus(nil, 100))...)
}

// appendFields encodes the header block of a response.
func appendFields(b []byte, h *Head) []byte {
	b = appendStatus(b, h.Status)
	b = appendInt(b, 0, 4, indexDate)
	b = appendString(b, date())
	if h.Length >= 0 {
		b = appendInt(b, 0, 4, indexContentLength)
		var digits [20]byte
		b = appendString(b, strconv.AppendInt(digits[:0], h.Length, 10))
	}
	if h.Fields == nil {
		return b
	}
	for name, value := range h.Fields {
		if index := nameIndex[string(name)]; index > 0 {
			b = appendInt(b, 0, 4, uint64(index))
		} else {
			b = append(b, 0)
			b = appendName(b, name)
		}
		b = appendString(b, value)
	}
	return b
}

// appendStatus begins a header block with the status: by its index, if the static table has it.
func appendStatus(b []byte, status int) []byte {
	b = append(b, tableSizeZero)
	for i, known := range [...]int{200, 204, 206, 304, 400, 404, 500} {
		if status == known {
			return append(b, 0x80|byte(indexStatus+i))
		}
	}
	b = append(b, indexStatus)
	return appendString(b, strconv.AppendInt(nil, int64(status), 10))
}

// appendInt adds an integer whose first bits share a byte with flags (RFC 7541 section 5.1).
func appendInt(b []byte, flags byte, bits uint, n uint64) []byte {
	limit := uint64(1)<<bits - 1
	if n < limit {
		return append(b, flags|byte(n))
	}
	// A varint has the same form: seven bits in each byte, the lowest ones first.
	return binary.AppendUvarint(append(b, flags|byte(limit)), n-limit)
}

// appendString adds a string without Huffman coding (RFC 7541 section 5.2), which saves a quarter
// of the bytes, but costs more time than their transfer.
func appendString(b, s []byte) []byte {
	return append(appendInt(b, 0, 7, uint64(len(s))), s...)
}

// appendName adds a name in lower case (RFC 9113 section 8.2.1).
func appendName(b, name []byte) []byte {
	b = appendInt(b, 0, 7, uint64(len(name)))
	for _, ch := range name {
		if 'A' <= ch && ch <= 'Z' {
			ch |= 0x20
		}
		b = append(b, ch)
	}
	return b
}

// today is the value of Date for one second.
type today struct {
	second int64
	text   []byte
}

var cachedDate atomic.Pointer[today]

// date returns the value of Date (RFC 9110 section 6.6.1).
func date() []byte {
	now := time.Now()
	if d := cachedDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &today{now.Unix(), now.UTC().AppendFormat(nil, "Mon, 02 Jan 2006 15:04:05 GMT")}
	cachedDate.Store(d)
	return d.text
}
