// Package frames follows the frames of an HTTP/2 connection (RFC 9113 section 4) without decoding
// their payloads. It tells a server about clients that its HTTP/2 implementation does not end:
// those that send half of a header block, that take no bytes of their responses, and that flood the
// connection with frames without a purpose.
//
//	t := frames.New()
//	n, err := conn.Read(p)
//	if flood := t.Received(p[:n]); flood != nil { ... } // end the connection
//	n, err = conn.Write(p)
//	t.Sent(p[:n])
//	// every second:
//	t.Refill(time.Second)
//	if s := t.State(); s.Partial && s.Received == before.Received { ... } // nothing became complete
//
// A Tracker uses some hundred bytes, and one map entry per open stream.
package frames

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"
)

// ErrFlood is the error of a client that sends too many frames without a purpose.
var ErrFlood = errors.New("too many HTTP/2 control frames, resets or streams")

// Types of frames (RFC 9113 section 6).
const (
	typeData         = 0
	typeHeaders      = 1
	typeRSTStream    = 3
	typeGoAway       = 7
	typeContinuation = 9
)

// Flags of frames (RFC 9113 section 6).
const (
	flagEndStream  = 0x1 // of DATA and HEADERS
	flagEndHeaders = 0x4 // of HEADERS and CONTINUATION
)

// Budgets of a client. A frame of a response adds to them, since a client acknowledges what it
// takes: by a WINDOW_UPDATE or two for each DATA frame.
const (
	maxControl       = 4096 // control frames in a row
	controlPerSecond = 100  // added with time
	controlPerFrame  = 32   // added by a DATA or HEADERS frame sent to the client

	maxResets       = 1000 // streams in a row that the client or the server resets
	resetsPerSecond = 100  // added with time; a complete response adds one too

	// maxOpen bounds the streams whose end was not seen, far above the limit of a server, which
	// resets the streams in excess.
	maxOpen = 4096
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" // of a client (RFC 9113 section 3.4)

const headLength = 9 // of a frame

// splitter finds the frames in a stream of bytes. A frame (RFC 9113 section 4.1); offsets count
// from its first byte:
//
//	0  length of the payload
//	3  type
//	4  flags
//	5  stream; its highest bit has no meaning
//	9  payload
type splitter struct {
	head [headLength]byte
	have int // bytes of head
	left int // bytes of the payload
}

// next consumes the bytes of p that belong to the current frame. ended reports whether p had its
// last byte.
func (s *splitter) next(p []byte) (rest []byte, ended bool) {
	if s.have < headLength {
		n := copy(s.head[s.have:], p)
		s.have, p = s.have+n, p[n:]
		if s.have < headLength {
			return nil, false
		}
		s.left = s.length()
	}
	n := min(s.left, len(p))
	if s.left -= n; s.left > 0 {
		return nil, false
	}
	s.have = 0
	return p[n:], true
}

func (s *splitter) length() int {
	return int(s.head[0])<<16 | int(s.head[1])<<8 | int(s.head[2])
}

func (s *splitter) kind() byte         { return s.head[3] }
func (s *splitter) has(flag byte) bool { return s.head[4]&flag != 0 }
func (s *splitter) stream() uint32     { return binary.BigEndian.Uint32(s.head[5:]) &^ (1 << 31) }
func (s *splitter) inFrame() bool      { return s.have > 0 }
func (s *splitter) isResponse() bool   { return s.kind() == typeData || s.kind() == typeHeaders }

// Tracker follows both directions of one connection. It is safe for concurrent use by one reader,
// one writer and any number of request handlers.
type Tracker struct {
	mu      sync.Mutex // guards the fields below
	in, out splitter
	preface int // bytes of the client's preface to come

	block    bool                // a header block is incomplete
	highest  uint32              // of the streams that the client has opened
	open     map[uint32]struct{} // streams without an end
	leaving  bool                // GOAWAY was sent: new streams are ignored
	handlers int                 // running handlers
	writing  int                 // of these, in a write
	control  float64             // control frames that are allowed
	resets   float64             // resets that are allowed
	state    State
}

// State is a snapshot of a Tracker.
type State struct {
	Partial  bool   // a frame or a header block of the client has begun and not ended
	Received uint64 // frames that have arrived; a header block counts as one

	Blocked bool   // a response waits for the client to take bytes
	Cleared uint64 // times that Blocked became false
	Sent    int64  // bytes of frames of responses
}

// New returns a Tracker of a connection without any bytes yet.
func New() *Tracker {
	return &Tracker{preface: len(preface), open: map[uint32]struct{}{}, control: maxControl, resets: maxResets}
}

// Received follows bytes of the client. The error is ErrFlood.
func (t *Tracker) Received(p []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(t.preface, len(p))
	t.preface, p = t.preface-n, p[n:]
	for len(p) > 0 {
		var ended bool
		if p, ended = t.in.next(p); ended {
			t.received(&t.in)
		}
	}
	if t.control < 0 || t.resets < 0 || len(t.open) > maxOpen {
		return ErrFlood
	}
	return nil
}

// received follows a frame of the client.
func (t *Tracker) received(f *splitter) {
	id := f.stream()
	switch f.kind() {
	case typeHeaders:
		t.block = !f.has(flagEndHeaders)
		if id > t.highest && !t.leaving {
			t.highest = id
			t.open[id] = struct{}{}
		}
	case typeContinuation:
		t.block = t.block && !f.has(flagEndHeaders)
		t.control--
	case typeRSTStream:
		t.reset(id)
	case typeData:
		if f.length() == 0 && !f.has(flagEndStream) {
			t.control--
		}
	default:
		t.control--
	}
	if !t.block {
		t.state.Received++
	}
}

// reset follows a RST_STREAM frame of either side.
func (t *Tracker) reset(id uint32) {
	if _, open := t.open[id]; !open {
		t.control--
		return
	}
	t.resets--
	delete(t.open, id)
	t.unblock()
}

// Sent follows bytes that were written to the client.
func (t *Tracker) Sent(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(p) > 0 {
		before := len(p)
		rest, ended := t.out.next(p)
		if (ended || t.out.have == headLength) && t.out.isResponse() {
			t.state.Sent += int64(before - len(rest))
		}
		if p = rest; ended {
			t.sent(&t.out)
		}
	}
}

// sent follows a frame of the server.
func (t *Tracker) sent(f *splitter) {
	switch {
	case f.isResponse():
		t.control = min(t.control+controlPerFrame, maxControl)
		if f.has(flagEndStream) {
			t.resets = min(t.resets+1, maxResets)
			delete(t.open, f.stream())
			t.unblock()
		}
	case f.kind() == typeRSTStream:
		if _, open := t.open[f.stream()]; open {
			t.reset(f.stream())
		}
	case f.kind() == typeGoAway:
		t.leaving = true
	}
}

// Refill adds the budget of a duration.
func (t *Tracker) Refill(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.control = min(t.control+controlPerSecond*d.Seconds(), maxControl)
	t.resets = min(t.resets+resetsPerSecond*d.Seconds(), maxResets)
}

// HandlerBegins and HandlerEnds enclose the handler of a request: until it writes, the client has
// nothing to take.
func (t *Tracker) HandlerBegins() { t.count(&t.handlers, 1) }

// HandlerEnds is described at HandlerBegins.
func (t *Tracker) HandlerEnds() { t.count(&t.handlers, -1) }

// WriteBegins and WriteEnds enclose a write of a handler.
func (t *Tracker) WriteBegins() { t.count(&t.writing, 1) }

// WriteEnds is described at WriteBegins.
func (t *Tracker) WriteEnds() { t.count(&t.writing, -1) }

func (t *Tracker) count(n *int, by int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*n += by
	t.unblock()
}

// blocked reports whether a response waits for the client: one whose handler is in a write, or one
// whose handler has ended while its last bytes have not been sent.
func (t *Tracker) blocked() bool { return t.writing > 0 || len(t.open) > t.handlers }

// unblock counts the times without a blocked response.
func (t *Tracker) unblock() {
	if !t.blocked() {
		t.state.Cleared++
	}
}

// State returns the current state.
func (t *Tracker) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.Partial = t.block || t.in.inFrame() || t.preface > 0
	t.state.Blocked = t.blocked()
	return t.state
}
