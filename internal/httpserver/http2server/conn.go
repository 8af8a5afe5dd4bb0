package http2server

import (
	"bufio"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/process/panics"

	"golang.org/x/net/http2"
)

const (
	readBuffer = 4 << 10 // bytes
	window     = 65535   // initial window of a stream and a connection (RFC 9113 section 6.9.2)
	maxWindow  = 1<<31 - 1

	// lingerTimeout is the time that a client has to close a connection after the last bytes. An
	// earlier close would reset the connection if the client is still sending, and a reset discards
	// bytes that the client has not read (RFC 9112 section 9.6).
	lingerTimeout = time.Second

	// drainTimeout bounds the time until the client has acknowledged the last bytes.
	drainTimeout = 2 * time.Minute
)

// conn is one connection. The goroutine of serve reads. All others use the fields under mu.
type conn struct {
	s      *Server
	t      Transport
	in     *bufio.Reader
	framer *http2.Framer
	block  block
	write  writer // the task that sends the output

	// Numbers of frames and header blocks that have begun to arrive, and that are complete.
	begun, complete atomic.Uint64

	mu      sync.Mutex // guards the fields below
	streams map[uint32]*Stream
	highest uint32    // highest id of the streams that the client has opened
	running int       // number of running handlers
	unread  int       // bytes of the heads of the streams with awaitsBody
	leaving bool      // GOAWAY was sent: new streams are ignored
	done    time.Time // of CloseWrite, after which the client has to close; zero = not called
	idle    bool      // MarkIdle was called
	err     error     // of the connection
	ended   sync.Cond

	recent [maxStreams]uint32 // ids of the last streams that the server has reset; the client may not know yet
	resets int                // number of resets by the server

	budget   budget
	received int64 // bytes that the client may send: the window of the connection
	due      int64 // received bytes for which no WINDOW_UPDATE was sent yet

	tableSize    uint32 // size of the table that the client has last allowed
	tableReduced bool   // the next header block has to begin with an update of the size of the table

	output
	progress
	watched watched
}

func newConn(s *Server, t Transport) *conn {
	c := &conn{s: s, t: t, in: bufio.NewReaderSize(t, readBuffer), streams: map[uint32]*Stream{}, budget: newBudget(),
		received: window, tableSize: tableSize}
	c.framer = http2.NewFramer(nil, c.in)
	c.framer.SetReuseFrames()
	c.framer.SetMaxReadFrameSize(maxFrame)
	c.block.init(s.o.MaxHead, s.o.MaxFields)
	c.output.window, c.output.streamWindow = window, window
	c.ended.L, c.room.L, c.heads.L, c.write.c = &c.mu, &c.mu, &c.mu, c
	return c
}

// serve reads frames until the connection ends, and waits for the handlers.
func (c *conn) serve() {
	c.mu.Lock()
	c.markIdle()
	c.mu.Unlock()
	err := c.readFrames()
	if code, ok := err.(http2.ConnectionError); ok {
		c.close(http2.ErrCode(code))
		_, _ = io.Copy(io.Discard, c.in) // until the client has closed, or lingerTimeout has passed
	} else {
		c.fail(err)
	}
	c.mu.Lock()
	for c.running > 0 || c.sending {
		c.ended.Wait()
	}
	c.mu.Unlock()
	c.fail(net.ErrClosed) // after close; after fail this has no effect
}

// readPreface reads the first bytes of a client (RFC 9113 section 3.4).
func (c *conn) readPreface() error {
	c.mu.Lock()
	c.appendSettings()
	c.send()
	c.mu.Unlock()
	if err := c.t.SetReadDeadline(time.Now().Add(c.s.o.ReadTimeout)); err != nil {
		return err
	}
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.in, preface); err != nil {
		return err
	}
	if string(preface) != http2.ClientPreface {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return c.t.SetReadDeadline(time.Time{})
}

// readFrames handles frames until one is wrong or the connection has ended. A panic, which is a
// bug, becomes an error.
func (c *conn) readFrames() (err error) {
	defer panics.ToError(&err, "reading HTTP/2")
	if err = c.readPreface(); err != nil {
		return err
	}
	for first := true; ; first = false {
		if _, err = c.in.Peek(1); err != nil {
			return err
		}
		if !c.block.open {
			c.begun.Add(1)
		}
		f, err := c.readFrame()
		if settings, ok := f.(*http2.SettingsFrame); first && err == nil && (!ok || settings.IsAck()) {
			return http2.ConnectionError(http2.ErrCodeProtocol) // RFC 9113 section 3.4
		}
		if err == nil {
			err = c.frame(f)
		}
		if err = c.frameEnds(err); err != nil {
			return err
		}
		if !c.block.open {
			c.complete.Add(1)
		}
	}
}

// readFrame reads a frame. A HEADERS frame with an invalid payload, such as one with too much
// padding, ends the connection: without its block the table of the client is unknown (RFC 9113
// section 4.3).
func (c *conn) readFrame() (http2.Frame, error) {
	head, err := c.framer.ReadFrameHeader()
	if errors.Is(err, http2.ErrFrameTooLarge) {
		return nil, http2.ConnectionError(http2.ErrCodeFrameSize)
	}
	if err != nil {
		return nil, err
	}
	f, err := c.framer.ReadFrameForHeader(head)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, io.ErrUnexpectedEOF) { // too short for its flags, or the client has left
		return nil, http2.ConnectionError(http2.ErrCodeFrameSize)
	}
	if wrong := (http2.StreamError{}); head.Type == http2.FrameHeaders && errors.As(err, &wrong) {
		return nil, http2.ConnectionError(wrong.Code)
	}
	return nil, err
}

// frameEnds resets the stream of a http2.StreamError. It returns the error that ends the
// connection; nil = none.
func (c *conn) frameEnds(err error) error {
	var wrong http2.StreamError
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.As(err, &wrong) {
		c.reset(wrong.StreamID, wrong.Code, ErrReset)
		err = nil
	}
	switch {
	case err != nil:
		return err
	case c.err != nil:
		return c.err
	case c.budget.spent() || c.overfull():
		return ErrFlood
	}
	if c.replied && c.in.Buffered() == 0 { // else further frames have arrived
		c.send()
	}
	return nil
}

// frame handles a frame. A http2.StreamError resets its stream; any other error ends the
// connection.
func (c *conn) frame(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.HeadersFrame:
		c.block.beginBlock(f)
		return c.fragment(f.HeaderBlockFragment(), f.HeadersEnded())
	case *http2.ContinuationFrame:
		c.spend()
		return c.fragment(f.HeaderBlockFragment(), f.HeadersEnded())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.data(f)
	case *http2.WindowUpdateFrame:
		c.budget.control--
		return c.windowUpdate(f.StreamID, int64(f.Increment))
	case *http2.RSTStreamFrame:
		return c.resetByClient(f.StreamID)
	}
	c.budget.control--
	switch f := f.(type) {
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			c.appendFrame(http2.FramePing, http2.FlagPingAck, 0, f.Data[:]...)
		}
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.GoAwayFrame:
		c.appendGoAway()
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

func (c *conn) spend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget.control--
}

// isIdle reports whether the client has not opened the stream. After GOAWAY it returns false: a
// client that has not read the GOAWAY may use streams that are ignored.
func (c *conn) isIdle(id uint32) bool { return !c.leaving && (id > c.highest || id%2 == 0) }

// data counts and discards a part of a request body.
func (c *conn) data(f *http2.DataFrame) error {
	id, size := f.StreamID, int64(f.Length) // Length includes padding (RFC 9113 section 6.9.1)
	if c.isIdle(id) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if c.received -= size; c.received < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	if c.due += size; c.due >= window/4 {
		c.appendWindowUpdate(0, c.due)
		c.received, c.due = c.received+c.due, 0
	}
	c.budget.control--
	st := c.streams[id]
	switch {
	case st != nil && !st.complete:
		return st.data(f)
	case id > c.highest || slices.Contains(c.recent[:], id):
		return nil // ignored after the GOAWAY, or sent before the client read the reset
	}
	return http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
}

// windowUpdate widens the window of a stream, or of the connection.
func (c *conn) windowUpdate(id uint32, by int64) error {
	if id == 0 {
		if c.output.window += by; c.output.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.room.Signal()
		return nil
	}
	if c.isIdle(id) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if st := c.streams[id]; st != nil {
		if st.window += by; st.window > maxWindow {
			return http2.StreamError{StreamID: id, Code: http2.ErrCodeFlowControl}
		}
		st.wide.Signal()
	}
	return nil
}

// settings applies the settings of the client. Heads are encoded without a table, and no frame is
// larger than the least maximum: only the window and a smaller table have an effect.
func (c *conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingInitialWindowSize:
			return c.setStreamWindow(int64(s.Val))
		case http2.SettingHeaderTableSize:
			c.tableReduced = c.tableReduced || s.Val < c.tableSize
			c.tableSize = s.Val
		}
		return nil
	})
	if err == nil {
		c.appendFrame(http2.FrameSettings, http2.FlagSettingsAck, 0)
	}
	return err
}

// setStreamWindow changes the window of new streams and, by the difference, those of the open ones
// (RFC 9113 section 6.9.2).
func (c *conn) setStreamWindow(size int64) error {
	by := size - c.streamWindow
	c.streamWindow = size
	for _, st := range c.streams {
		if st.window += by; st.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		st.wide.Signal()
	}
	return nil
}

// resetByClient drops a stream that the client has reset.
func (c *conn) resetByClient(id uint32) error {
	if c.isIdle(id) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	st := c.streams[id]
	if st == nil {
		c.budget.control--
		return nil
	}
	c.budget.resets--
	c.drop(st, ErrReset)
	return nil
}

// reset resets a stream of the client. Writes of its handler return the cause.
func (c *conn) reset(id uint32, code http2.ErrCode, cause error) {
	c.budget.resets--
	c.recent[c.resets%len(c.recent)] = id
	c.resets++
	c.appendFrame(http2.FrameRSTStream, 0, id, byte(code>>24), byte(code>>16), byte(code>>8), byte(code))
	if st := c.streams[id]; st != nil {
		c.drop(st, cause)
	}
}

// drop ends and removes a stream before its response is complete.
func (c *conn) drop(st *Stream, cause error) {
	st.failWrites(cause)
	c.remove(st)
}

// remove removes a stream that was reset, or has ended in both directions. After a GOAWAY, the
// connection ends with its last stream.
func (c *conn) remove(st *Stream) {
	st.endWait()
	delete(c.streams, st.id)
	if c.finished() {
		c.send()
	}
	c.markIdle()
}

// markIdle marks the connection as idle if it has no streams and all responses were sent.
func (c *conn) markIdle() {
	if !c.idle && len(c.streams) == 0 && c.out == nil && !c.sending {
		c.idle = true
		c.t.MarkIdle()
	}
}

// markBusy marks the connection as busy; false if it has been claimed since markIdle.
func (c *conn) markBusy() bool {
	if c.idle {
		c.idle = !c.t.MarkBusy()
	}
	return !c.idle
}

// goAway ends the connection after its running requests.
func (c *conn) goAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.appendGoAway()
	c.send()
}

// appendGoAway adds a GOAWAY, after which the client opens no further streams. Streams that it has
// opened meanwhile are ignored, and it may repeat them on another connection (RFC 9113 section
// 6.8).
func (c *conn) appendGoAway() {
	if !c.leaving {
		c.leaving = true
		c.appendGoAwayFrame(http2.ErrCodeNo)
	}
}

// close sends a GOAWAY with the error of the client, and ends all streams. The caller waits until
// the output is sent.
func (c *conn) close(code http2.ErrCode) {
	_ = c.t.SetDeadline(time.Now().Add(lingerTimeout)) // fails only on a closed connection
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
	c.appendGoAwayFrame(code)
	for _, st := range c.streams {
		c.drop(st, ErrReset)
	}
	c.send()
}

// fail ends the connection and all streams at once. Only the first call has an effect.
func (c *conn) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		c.clearOutput()
		for _, st := range c.streams {
			c.drop(st, err)
		}
		c.room.Broadcast()
		c.heads.Broadcast()
	}
	c.mu.Unlock()
	if !first {
		return
	}
	switch {
	case errors.Is(err, ErrFlood), errors.Is(err, ErrSlow), errors.Is(err, errLate):
		c.s.o.OnEnd(c.t, err)
		_ = c.t.Abandon() // an error means that the client has closed it
	default:
		_ = c.t.Close()
	}
}
