package gateway

import (
	"bufio"
	"errors"
	"io"
	"sync"

	"fastdfs-gateway/internal/httpserver/eventloop"
	"fastdfs-gateway/internal/httpserver/guard"
	"fastdfs-gateway/internal/process/panics"

	"github.com/valyala/fasthttp"
)

// exchange serves requests of plain connections, one after the other, in place of the loop of
// fasthttp.Server: a connection has no exchange while it waits for its next request, and bodies of
// requests, which the guard has discarded, are not looked for.
type exchange struct {
	ctx fasthttp.RequestCtx
	out *bufio.Writer
}

// writeBuffer is the size of the buffer for the head of a response, and a small body.
const writeBuffer = 4 << 10

func newExchange() any { return &exchange{out: bufio.NewWriterSize(nil, writeBuffer)} }

// heads are the buffers of heads while they are parsed. The guard passes one head at a time.
var heads = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, guard.ReadBufferSize) }}

// readHead reads and parses one head.
func (e *exchange) readHead(c *guard.Conn) error {
	in := heads.Get().(*bufio.Reader)
	in.Reset(c)
	err := e.ctx.Request.Header.Read(in)
	in.Reset(nil)
	heads.Put(in)
	return err
}

// serveConn serves the requests of a plain connection until the next one has to be waited for.
func (s *Server) serveConn(socket *eventloop.Conn) {
	c := socket.Owner.(*conn)
	defer func() {
		if p := recover(); p != nil { // outside of the handler
			panics.Report(p, "serving a connection")
			_ = c.Close()
		}
	}()
	for s.serveRequests(c) {
		if socket.Park() {
			return // another goroutine may serve c already
		}
	}
	_ = c.guarded.Close() // an error means that the client has closed it
}

// serveRequests reports whether the connection waits for its next request; false at its end.
func (s *Server) serveRequests(c *conn) (waits bool) {
	e := s.exchanges.Get().(*exchange)
	e.out.Reset(c.guarded)
	e.ctx.Init2(c.guarded, s.debug, false)
	defer func() {
		e.out.Reset(nil)
		s.exchanges.Put(e)
	}()
	for s.serveRequest(c, e) {
	}
	return c.guarded.Parked()
}

// serveRequest serves one request; false if there is none, or no further one may follow it.
func (s *Server) serveRequest(c *conn, e *exchange) (more bool) {
	req, resp := &e.ctx.Request, &e.ctx.Response
	resp.Header.SetNoDefaultContentType(true)
	err := e.readHead(c.guarded)
	if errors.Is(err, io.EOF) {
		return false
	}
	defer func() {
		req.Reset()
		resp.Reset()
	}()
	if err != nil {
		s.parseError(&e.ctx, err)
	} else {
		s.serve(&e.ctx)
	}
	resp.SkipBody = resp.SkipBody || e.ctx.IsHead()
	last := err != nil || req.Header.ConnectionClose() || resp.Header.ConnectionClose()
	switch {
	case last:
		resp.Header.SetConnectionClose()
		c.Last()
	case !req.Header.IsHTTP11():
		resp.Header.Set(fasthttp.HeaderConnection, "keep-alive")
	}
	if len(resp.Header.Server()) == 0 {
		resp.Header.SetServer(productName)
	}
	if err = resp.Write(e.out); err == nil {
		err = e.out.Flush()
	}
	return err == nil && !last
}
