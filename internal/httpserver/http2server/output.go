package http2server

import (
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	frameHead = 9 // bytes (RFC 9113 section 4.1)

	// maxOutput bounds the frames of responses that wait to be sent: two records of TLS (RFC 8446
	// section 5.1), each of which is a system call. A frame of a body ends with the second record
	// at the latest.
	maxOutput = 2 * 16 << 10

	// minFrame is the least room for a frame of a response: with less room it waits.
	minFrame = 4 << 10

	// maxReplies bounds all frames that wait, replies to frames of the client included.
	maxReplies = maxOutput + 64<<10
)

// outputs holds the buffers of outputs. A head may make a buffer longer than maxOutput.
var outputs = sync.Pool{New: func() any { b := make([]byte, 0, maxOutput+maxFrame); return &b }}

// output holds the frames that wait to be sent.
type output struct {
	out      *[]byte   // nil = none
	response int64     // bytes of out in HEADERS and DATA
	appended int64     // bytes in HEADERS and DATA since the connection began
	replied  bool      // out has a frame that is no part of a response
	sending  bool      // a goroutine sends the output
	room     sync.Cond // there is room in out and in window, or err is set
	heads    sync.Cond // there is room in out, or err is set

	window       int64 // bytes of bodies that the client still accepts
	streamWindow int64 // window of a new stream
}

// space returns the number of bytes that the payload of a frame of a response may have.
func (c *conn) space() int {
	if c.out == nil {
		return maxFrame
	}
	return min(maxFrame, maxOutput-frameHead-len(*c.out))
}

// fits reports whether a frame of a response may be added.
func (c *conn) fits() bool { return c.space() >= minFrame }

// hasRoom reports whether a frame of a body may be added.
func (c *conn) hasRoom() bool { return c.fits() && c.output.window > 0 }

// overfull reports whether the client sends frames that have replies, and does not take these.
func (c *conn) overfull() bool { return c.out != nil && len(*c.out) > maxReplies }

// appendFrameHead begins a frame.
func (c *conn) appendFrameHead(kind http2.FrameType, flags http2.Flags, id uint32, length int) {
	if c.out == nil {
		c.out = outputs.Get().(*[]byte)
	}
	*c.out = append(*c.out, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	*c.out = binary.BigEndian.AppendUint32(*c.out, id)
}

// appendFrame adds a frame that is no part of a response.
func (c *conn) appendFrame(kind http2.FrameType, flags http2.Flags, id uint32, payload ...byte) {
	if c.err != nil || !c.done.IsZero() {
		return
	}
	c.appendFrameHead(kind, flags, id, len(payload))
	*c.out = append(*c.out, payload...)
	c.replied = true
}

func (c *conn) appendSettings() {
	var payload []byte
	for _, s := range []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: maxStreams},
		{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.s.o.MaxHead)}} {
		payload = binary.BigEndian.AppendUint16(payload, uint16(s.ID))
		payload = binary.BigEndian.AppendUint32(payload, s.Val)
	}
	c.appendFrame(http2.FrameSettings, 0, 0, payload...)
}

func (c *conn) appendWindowUpdate(id uint32, by int64) {
	c.appendFrame(http2.FrameWindowUpdate, 0, id, binary.BigEndian.AppendUint32(nil, uint32(by))...)
}

func (c *conn) appendGoAwayFrame(code http2.ErrCode) {
	payload := binary.BigEndian.AppendUint32(nil, c.highest)
	c.appendFrame(http2.FrameGoAway, 0, 0, binary.BigEndian.AppendUint32(payload, uint32(code))...)
}

// appendData adds a part of a body.
func (c *conn) appendData(id uint32, p []byte, end bool) {
	flags := http2.Flags(0)
	if end {
		flags = http2.FlagDataEndStream
	}
	c.appendFrameHead(http2.FrameData, flags, id, len(p))
	*c.out = append(*c.out, p...)
	c.countResponse(frameHead + int64(len(p)))
	c.budget.sent()
}

// countResponse counts bytes of HEADERS and DATA.
func (c *conn) countResponse(n int64) {
	c.response += n
	c.appended += n
}

// writer is the task that sends the output of a connection.
type writer struct{ c *conn }

// send starts a goroutine that sends the output, and ends the connection if it has finished.
func (c *conn) send() {
	if c.takeOutput() {
		c.s.workers.start(&c.write)
	}
}

// takeOutput claims the sending of the output for the caller. It returns false if nothing is to be
// sent, or a goroutine sends already.
func (c *conn) takeOutput() bool {
	if c.sending || c.err != nil || c.out == nil && !c.finished() {
		return false
	}
	c.sending = true
	return true
}

// finished reports whether no stream is left after a GOAWAY, and CloseWrite was not called yet.
func (c *conn) finished() bool { return c.leaving && len(c.streams) == 0 && c.done.IsZero() }

// run sends until no output is left.
func (w *writer) run() {
	c := w.c
	for {
		c.mu.Lock()
		b, response := c.out, c.response
		if b == nil || c.err != nil {
			finished := c.err == nil && c.finished()
			if finished {
				c.done = time.Now()
			}
			c.sending = false
			c.ended.Broadcast()
			c.cleared()
			c.markIdle()
			c.mu.Unlock()
			if finished {
				_ = c.t.CloseWrite() // an error means that the client has closed it
			}
			return
		}
		c.out, c.response, c.replied = nil, 0, false
		c.room.Signal() // one signal for each of two frames
		c.room.Signal()
		c.heads.Broadcast()
		c.mu.Unlock()
		_, err := c.t.Write(*b)
		releaseBuffer(b)
		if err != nil {
			c.fail(err)
			continue
		}
		c.mu.Lock()
		c.sent += response
		c.mu.Unlock()
	}
}

// releaseBuffer returns a buffer to its pool, unless replies have made it large.
func releaseBuffer(b *[]byte) {
	if cap(*b) <= 2*maxOutput {
		*b = (*b)[:0]
		outputs.Put(b)
	}
}

// clearOutput discards the output.
func (c *conn) clearOutput() {
	if c.out != nil {
		releaseBuffer(c.out)
		c.out, c.response = nil, 0
	}
}
