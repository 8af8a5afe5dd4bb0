package http2server

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Request is the head of a request. Fields are in the order in which they came, with names in lower
// case.
type Request struct {
	Method    string
	Target    string // :path, or :authority of a CONNECT
	Authority string // :authority, or Host if that is missing
	Fields    []hpack.HeaderField
	Length    int64 // of the body, by Content-Length; -1 = not declared
	Problem   Problem
}

// Problem is a reason to reject a request.
type Problem int

// Problems.
const (
	None          Problem = iota
	HeadTooLong           // more than MaxHead; Fields is nil
	TooManyFields         // more than MaxFields; Fields is nil
	BodyTooLarge          // more than MaxBody
	BodyLate              // the body did not arrive within ReadTimeout
)

// block is the header block that is being read (RFC 9113 section 4.3).
type block struct {
	decoder   *hpack.Decoder
	maxHead   int
	maxFields int

	open      bool // the block is incomplete
	order     order
	id        uint32
	ends      bool // the block ends the stream
	encoded   int  // bytes of the block so far
	size      int  // of the header list (RFC 9113 section 6.5.2)
	malformed bool // RFC 9113 section 8.1.1
	expects   bool // Expect: 100-continue
	scheme    string
	pseudo    int  // pseudo-fields seen, one bit each
	regular   bool // a field that is no pseudo-field was seen
	request   Request
}

// Bits of block.pseudo.
const (
	sawMethod = 1 << iota
	sawScheme
	sawAuthority
	sawPath
)

// tableSize is the size in bytes of the table of each side, unless that side sets another one.
const tableSize = 4096

func (b *block) init(maxHead, maxFields int) {
	b.maxHead, b.maxFields = maxHead, maxFields
	b.decoder = hpack.NewDecoder(tableSize, b.field)
	// A longer string would end the connection. A block of at most maxBlock * maxHead encoded bytes
	// has none, since Huffman coding saves at most three eighths.
	b.decoder.SetMaxStringLength(2 * maxBlock * maxHead)
}

// beginBlock starts a block.
func (b *block) beginBlock(f *http2.HeadersFrame) {
	*b = block{decoder: b.decoder, maxHead: b.maxHead, maxFields: b.maxFields, open: true, id: f.StreamID,
		ends: f.StreamEnded(), request: Request{Length: -1}}
	b.malformed = f.HasPriority() && f.Priority.StreamDep == f.StreamID
	b.decoder.SetEmitEnabled(true)
}

// maxBlock * maxHead bounds the bytes of an encoded block.
const maxBlock = 2

// addFragment decodes a fragment of the block.
func (b *block) addFragment(fragment []byte, last bool) error {
	if b.encoded += len(fragment); b.encoded > maxBlock*b.maxHead {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	if _, err := b.decoder.Write(fragment); err != nil || !b.order.check(fragment) {
		return http2.ConnectionError(http2.ErrCodeCompression)
	}
	if !last {
		return nil
	}
	b.open = false
	if b.decoder.Close() != nil {
		return http2.ConnectionError(http2.ErrCodeCompression)
	}
	return nil
}

// field checks and stores a decoded field.
func (b *block) field(f hpack.HeaderField) {
	if b.size += int(f.Size()); b.size > b.maxHead {
		b.stop(HeadTooLong)
		return
	}
	switch {
	case !httpguts.ValidHeaderFieldValue(f.Value), strings.Trim(f.Value, " \t") != f.Value: // RFC 9113 section 8.2.1
		b.malformed = true
	case strings.HasPrefix(f.Name, ":"):
		b.pseudoField(f)
	default:
		b.regular = true
		b.regularField(f)
	}
}

// stop ends the decoding of a request that is too large, and drops its fields.
func (b *block) stop(p Problem) {
	b.request.Problem = p
	b.request.Fields = nil
	b.decoder.SetEmitEnabled(false)
}

// pseudoField stores a pseudo-field (RFC 9113 section 8.3.1).
func (b *block) pseudoField(f hpack.HeaderField) {
	var to *string
	bit := 0
	switch f.Name {
	case ":method":
		to, bit = &b.request.Method, sawMethod
	case ":scheme":
		to, bit = &b.scheme, sawScheme
	case ":authority":
		to, bit = &b.request.Authority, sawAuthority
	case ":path":
		to, bit = &b.request.Target, sawPath
	}
	if bit == 0 || b.pseudo&bit != 0 || b.regular {
		b.malformed = true
		return
	}
	b.pseudo |= bit
	*to = f.Value
}

// regularField stores a header field. A field of a connection makes the request malformed (RFC 9113
// section 8.2.2).
func (b *block) regularField(f hpack.HeaderField) {
	switch f.Name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		b.malformed = true
	case "te":
		b.malformed = b.malformed || f.Value != "trailers"
	case "content-length":
		n, err := strconv.ParseUint(f.Value, 10, 63)
		b.malformed = b.malformed || err != nil || b.request.Length >= 0
		b.request.Length = int64(n)
	case "expect":
		b.expects = b.expects || strings.EqualFold(f.Value, "100-continue")
	case "":
		b.malformed = true
	}
	for i := range len(f.Name) {
		if ch := f.Name[i]; 'A' <= ch && ch <= 'Z' || !httpguts.IsTokenRune(rune(ch)) {
			b.malformed = true
			return
		}
	}
	if len(b.request.Fields) == b.maxFields {
		b.stop(TooManyFields)
		return
	}
	b.request.Fields = append(b.request.Fields, f)
}

// finish checks and completes the request of a whole block.
func (b *block) finish() {
	r := &b.request
	if r.Problem != None {
		return // fields are missing
	}
	const plain, connect = sawMethod | sawScheme | sawPath, sawMethod | sawAuthority
	switch {
	case r.Method == "CONNECT":
		b.malformed = b.malformed || b.pseudo != connect
		r.Target = r.Authority
	default:
		b.malformed = b.malformed || b.pseudo|sawAuthority != plain|sawAuthority || r.Target == "" ||
			r.Method == "" || b.scheme != "http" && b.scheme != "https"
	}
	b.malformed = b.malformed || b.ends && r.Length > 0
	for i := 0; r.Authority == "" && i < len(r.Fields); i++ {
		if r.Fields[i].Name == "host" {
			r.Authority = r.Fields[i].Value
		}
	}
}

// fragment adds to the header block. The last fragment opens a stream, or ends its body.
func (c *conn) fragment(p []byte, last bool) error {
	b := &c.block
	if err := b.addFragment(p, last); err != nil || !last {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.id%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	switch st := c.streams[b.id]; {
	case st != nil && st.complete:
		return http2.StreamError{StreamID: b.id, Code: http2.ErrCodeStreamClosed}
	case st != nil && (!b.ends || b.pseudo != 0 || b.malformed): // trailers (RFC 9113 section 8.1)
		return http2.StreamError{StreamID: b.id, Code: http2.ErrCodeProtocol}
	case st != nil:
		return st.bodyEnds()
	case b.id > c.highest:
		return c.openStream()
	}
	for _, id := range c.recent {
		if id == b.id {
			return nil // sent before the client read the reset
		}
	}
	return http2.ConnectionError(http2.ErrCodeProtocol)
}

// openStream begins the stream of the block.
func (c *conn) openStream() error {
	b := &c.block
	switch {
	case c.err != nil: // fail has ended all streams, and ends no later one
		return c.err
	case c.leaving:
		return nil
	}
	c.highest = b.id
	if b.finish(); b.malformed {
		return http2.StreamError{StreamID: b.id, Code: http2.ErrCodeProtocol}
	}
	if b.request.Length > MaxBody && b.request.Problem == None {
		b.request.Problem = BodyTooLarge
	}
	waits := !b.ends && b.request.Problem == None
	if len(c.streams) >= maxStreams || c.running >= maxHandlers || waits && c.unread+b.size > b.maxHead {
		return http2.StreamError{StreamID: b.id, Code: http2.ErrCodeRefusedStream}
	}
	if !c.markBusy() {
		return errDone // the connection was evicted for another one
	}
	st := newStream(c, b)
	c.streams[b.id] = st
	st.complete = b.ends
	if waits {
		st.awaitsBody, st.opened = true, time.Now()
		c.unread += st.head
		if b.expects {
			c.appendContinue(st.id)
		}
		return nil
	}
	c.start(st)
	return nil
}

// start calls the handler.
func (c *conn) start(st *Stream) {
	st.endWait()
	c.running++
	c.s.workers.start(st)
}
