package http2server

import (
	"context"
	"iter"
	"sync"
	"time"

	"fastdfs-gateway/internal/process/panics"

	"golang.org/x/net/http2"
)

// Stream is a request and its response. One goroutine, that of the handler, uses it until the
// handler returns.
type Stream struct {
	Request Request

	c  *conn
	id uint32

	// conn.mu guards the fields below.
	wide       sync.Cond // the window is wider, or err is set
	window     int64     // bytes that the client still accepts
	err        error     // the response cannot be completed
	answered   bool      // the response is complete
	complete   bool      // the request is complete
	awaitsBody bool      // the handler is called after the body
	head       int       // bytes of the header list
	opened     time.Time // start of a stream with awaitsBody
	body       int64     // bytes of the body of the request so far
	received   int64     // bytes that the client may send: the window of the stream
	due        int64     // received bytes for which no WINDOW_UPDATE was sent yet
	stall      stall

	context context.Context // nil until Context
	cancel  context.CancelFunc
}

func newStream(c *conn, b *block) *Stream {
	st := &Stream{Request: b.request, c: c, id: b.id, head: b.size, window: c.streamWindow, received: window}
	st.wide.L = &c.mu
	return st
}

// Transport returns the connection.
func (st *Stream) Transport() Transport { return st.c.t }

// Context returns a context that ends when the client resets the stream or disconnects, and when
// the handler has returned.
func (st *Stream) Context() context.Context {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.context == nil {
		st.context, st.cancel = context.WithCancel(context.Background())
		if st.err != nil {
			st.cancel()
		}
	}
	return st.context
}

// endWait ends the wait for the body of the request.
func (st *Stream) endWait() {
	if st.awaitsBody {
		st.awaitsBody = false
		st.c.unread -= st.head
	}
}

// failWrites makes writes fail, and ends the context.
func (st *Stream) failWrites(cause error) {
	if st.err == nil {
		st.err = cause
	}
	if st.cancel != nil {
		st.cancel()
	}
	st.wide.Broadcast()
	if st.c.waiting > 0 {
		st.c.room.Broadcast()
		st.c.heads.Broadcast()
	}
}

// data counts a part of the body of the request.
func (st *Stream) data(f *http2.DataFrame) error {
	if st.received -= int64(f.Length); st.received < 0 {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeFlowControl}
	}
	st.body += int64(len(f.Data()))
	switch {
	case st.Request.Length >= 0 && st.body > st.Request.Length:
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	case st.body > MaxBody && st.awaitsBody:
		st.Request.Problem = BodyTooLarge
		st.c.start(st)
	}
	if f.StreamEnded() {
		return st.bodyEnds()
	}
	if st.due += int64(f.Length); st.due >= window/4 && st.awaitsBody {
		st.c.appendWindowUpdate(st.id, st.due)
		st.received, st.due = st.received+st.due, 0
	}
	return nil
}

// bodyEnds completes the request. It starts the handler that waits for the body, or removes a
// stream whose response is complete already.
func (st *Stream) bodyEnds() error {
	if st.Request.Length >= 0 && st.body != st.Request.Length {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	}
	st.complete = true
	switch {
	case st.awaitsBody:
		st.c.start(st)
	case st.answered: // the response did not wait for the body
		st.c.remove(st)
	}
	return nil
}

// run calls the handler and then sends the output of the connection.
func (st *Stream) run() {
	st.handle()
	c := st.c
	c.mu.Lock()
	switch {
	case st.err != nil: // the stream was removed
	case !st.answered:
		c.reset(st.id, http2.ErrCodeInternal, ErrReset)
	case !st.complete:
		c.reset(st.id, http2.ErrCodeNo, ErrReset) // RFC 9113 section 8.1
	}
	st.failWrites(ErrReset)
	c.running--
	mine := c.takeOutput()
	if !mine {
		c.ended.Broadcast()
	}
	c.mu.Unlock()
	if mine {
		c.write.run()
	}
}

func (st *Stream) handle() {
	defer panics.Contain("serving HTTP/2")
	st.c.s.o.Handler(st)
}

// Head is the head of a response.
type Head struct {
	Status int
	Length int64                     // of the body; -1 = without Content-Length
	Fields iter.Seq2[[]byte, []byte] // without Content-Length and Date; nil = none
	Last   bool                      // the connection ends after its running requests
}

// WriteHead adds the head to the output; end is true for a response without a body. The head is
// sent with the body, or when the handler returns.
func (st *Stream) WriteHead(h Head, end bool) error {
	block := blocks.Get().(*[]byte)
	*block = appendFields((*block)[:0], &h)
	defer blocks.Put(block)
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.Last {
		c.appendGoAway()
	}
	for st.err == nil && !c.fits() {
		c.send()
		c.waits(&c.heads)
	}
	if st.err != nil {
		return st.err
	}
	c.appendHead(st.id, *block, end)
	st.wrote(end)
	return nil
}

// Write adds bytes of the body to the output; end is true for the last ones. It waits while the
// windows of the client or the output have no room for them.
func (st *Stream) Write(p []byte, end bool) (n int, err error) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		size := min(len(p)-n, maxFrame)
		if err = st.awaitRoom(size); err != nil {
			return n, err
		}
		size = int(min(int64(min(size, c.space())), st.window, c.output.window))
		last := end && n+size == len(p)
		c.appendData(st.id, p[n:n+size], last)
		st.stall.sent, st.stall.position = st.stall.sent+int64(size), c.appended
		c.bodies += int64(size)
		st.window -= int64(size)
		c.output.window -= int64(size)
		if n += size; n == len(p) {
			st.wrote(last)
			return n, nil
		}
	}
}

// Flush sends the written bytes, since the next ones may be late.
func (st *Stream) Flush() error {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	st.c.send()
	return st.err
}

// wrote records the end of the response, and wakes another handler if the output still has room.
func (st *Stream) wrote(end bool) {
	st.answered = st.answered || end
	if end && st.complete {
		st.c.remove(st)
		st.c.budget.answered()
	}
	if st.c.hasRoom() {
		st.c.room.Signal()
	}
}

// awaitRoom waits until a frame with size bytes of a body can be added to the output: at least one
// of them if the windows are smaller. An empty frame needs no window.
func (st *Stream) awaitRoom(size int) error {
	c := st.c
	for st.err == nil {
		switch {
		case size > 0 && st.window <= 0:
			if c.hasRoom() {
				c.room.Signal() // this handler cannot use the room, another one may
			}
			c.send()
			st.stall.waiting = true
			st.wide.Wait()
			st.stall.waiting = false
		case size > 0 && c.output.window <= 0, !c.fits():
			c.send()
			c.waits(&c.room)
		default:
			return nil
		}
	}
	return st.err
}
