package httpserver

import (
	"bufio"
	"errors"
	"io"
	"sync"
	"time"

	"fastdfs-gateway/internal/httpserver/eventloop"
	"fastdfs-gateway/internal/httpserver/guard"
	"fastdfs-gateway/internal/process/panics"

	"github.com/valyala/fasthttp"
)

// This file serves requests by HTTP/1, in place of the loop of fasthttp.Server: a connection has no
// Exchange while it waits for its next request, and no body is read, since the guard has discarded
// it.

// Sizes of the buffer for the head of a response, and a small body.
const (
	writeBuffer    = 4 << 10
	tlsWriteBuffer = 16 << 10 // a record of TLS (RFC 8446 section 5.1): each record is one system call
)

func newExchange(buffer int) *Exchange { return &Exchange{out: bufio.NewWriterSize(nil, buffer)} }

// heads holds the buffers of heads while they are parsed. The guard passes one head at a time.
var heads = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, guard.ReadBufferSize) }}

// readHead reads and parses one head.
func (x *Exchange) readHead(c *guard.Conn) error {
	in := heads.Get().(*bufio.Reader)
	in.Reset(c)
	err := x.Ctx.Request.Header.Read(in)
	in.Reset(nil)
	heads.Put(in)
	return err
}

// serveConn serves the requests of a plain connection, and parks it when no request has begun.
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

// serveTLS serves a connection with TLS until its end.
func (s *Server) serveTLS(c *conn) {
	defer panics.Contain("serving a connection")
	defer c.guarded.Close() // an error means that the client has closed it
	// Setting a deadline fails only on a closed connection.
	_ = c.tls.SetReadDeadline(time.Now().Add(s.o.ReadTimeout))
	err := c.tls.Handshake()
	_ = c.tls.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		s.rejectPlain(c, err)
	case c.tls.ConnectionState().NegotiatedProtocol == "h2":
		t := &http2Conn{Conn: c.tls, marker: c.guarded, counted: c}
		c.http2.Store(t)
		s.http2.Serve(t)
	default:
		s.serveRequests(c)
	}
}

// serveRequests serves the requests of a connection. It returns true if a plain connection waits
// for its next request, and false at the end of the connection.
func (s *Server) serveRequests(c *conn) (waits bool) {
	for c.guarded.Next() {
		if !s.serveRequest(c) {
			return false
		}
	}
	return c.guarded.Parked()
}

// serveRequest serves the next request, and reports whether further ones may follow.
func (s *Server) serveRequest(c *conn) (more bool) {
	exchanges := &s.exchanges
	if c.tls != nil {
		exchanges = &s.tlsExchanges
	}
	x := exchanges.Get().(*Exchange)
	req, resp := &x.Ctx.Request, &x.Ctx.Response
	x.conn = c
	x.out.Reset(c.guarded)
	x.Ctx.Init2(c.guarded, nil, false)
	defer func() {
		req.Reset()
		resp.Reset()
		x.out.Reset(nil)
		x.conn = nil
		exchanges.Put(x)
	}()
	err := x.readHead(c.guarded)
	switch {
	case errors.Is(err, io.EOF): // closed by another goroutine
		return false
	case err != nil:
		s.parseError(&x.Ctx, err)
	default:
		c.requests.Add(1)
		s.serve(x)
	}
	if x.Ctx.IsHead() {
		if resp.SkipBody = true; len(resp.Body()) == 0 && resp.Header.ContentLength() == 0 {
			resp.Header.SetContentLength(0) // as for GET
		}
	}
	last := err != nil || req.Header.ConnectionClose() || resp.Header.ConnectionClose()
	switch {
	case last:
		resp.Header.SetConnectionClose()
		if c.tls == nil { // with TLS, close_notify follows the response
			c.Last()
		}
	case !req.Header.IsHTTP11():
		resp.Header.Set(fasthttp.HeaderConnection, "keep-alive")
	}
	return x.respond() == nil && !last
}

// respond sends the response: fasthttp writes the head to the buffer, and the body writes itself.
func (x *Exchange) respond() (err error) {
	head := &x.Ctx.Response.Header
	if len(head.Server()) == 0 {
		head.SetServer(ServerName)
	}
	body := x.takeBody()
	if body == nil {
		err = x.Ctx.Response.Write(x.out)
	} else {
		head.SetContentLength(int(body.Length()))
		if err = head.Write(x.out); err == nil {
			_, err = body.WriteTo(x.out)
		} else {
			body.Fail(err)
		}
		body.Close()
	}
	if err == nil {
		err = x.out.Flush()
	}
	return err
}
