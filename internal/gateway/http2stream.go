package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"fastdfs-gateway/internal/httpserver/guard"
	"fastdfs-gateway/internal/httpserver/sendfile"
	"fastdfs-gateway/internal/process/panics"

	"github.com/valyala/fasthttp"
)

// stream is one HTTP/2 request as a fasthttp.RequestCtx, so that one Handler serves both protocols.
// It is the connection of the RequestCtx, for the addresses, and the writer of the body. It is
// pooled: nothing in it outlives the response.
type stream struct {
	net.Conn // an *http2Conn
	h        *http2Server
	conn     *http2Conn
	request  context.Context // ends when the client resets the stream or disconnects
	writer   http.ResponseWriter
	fast     fasthttp.RequestCtx
	scratch  []byte
	left     int64 // bytes of the body that were not written
	fastTook bool  // the client took the last write at once
}

func newStream(h *http2Server) *stream { return &stream{h: h} }

// serveStream responds to one request, for net/http.
func (h *http2Server) serveStream(w http.ResponseWriter, r *http.Request) {
	conn := r.Context().Value(http2ConnKey{}).(*http2Conn)
	conn.frames.HandlerBegins()
	defer conn.frames.HandlerEnds()
	st := h.pool.Get().(*stream)
	st.Conn, st.conn, st.request, st.writer, st.fastTook = conn, conn, r.Context(), w, false
	err := st.serve(r)
	st.Conn, st.conn, st.request, st.writer = nil, nil, nil, nil
	h.pool.Put(st)
	if err != nil {
		panic(http.ErrAbortHandler) // net/http resets the stream: a short body never looks complete
	}
}

// serve checks the request, calls the handler and sends the response. The error is that of a
// response that ended early.
func (st *stream) serve(r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			panics.Report(p, "serving HTTP/2")
			err = sendfile.ErrPanic
		}
	}()
	st.fast.Init2(st, nil, true)
	st.fast.Response.Header.SetNoDefaultContentType(true)
	defer func() {
		st.fast.Request.Reset()
		st.fast.Response.Reset()
	}()
	if rejected := st.read(r); rejected != nil {
		return st.reject(rejected)
	}
	if n := st.h.streams.Add(1); n > int64(st.h.s.o.MaxConnections) {
		defer st.h.streams.Add(-1)
		st.h.s.handler.Load().Reject(&st.fast, errTooManyStreams)
		return st.respond()
	}
	defer st.h.streams.Add(-1)
	st.conn.outer.counted.requests.Add(1)
	st.h.s.handler.Load().Serve(&st.fast)
	return st.respond()
}

// read fills in the RequestCtx, and discards the body.
func (st *stream) read(r *http.Request) (rejected *guard.Error) {
	grown, target, rejected := guard.CheckHTTP2(st.scratch, r)
	st.scratch = grown
	if rejected != nil {
		return rejected
	}
	if r.ContentLength != 0 {
		// an error means that the stream has ended
		_ = http.NewResponseController(st.writer).SetReadDeadline(time.Now().Add(st.h.s.o.ReadTimeout))
		if rejected = guard.DiscardHTTP2(r.Body); rejected != nil {
			rejected.Line = []byte(r.Method + " " + r.RequestURI + " HTTP/2.0")
			return rejected
		}
	}
	head := &st.fast.Request.Header
	head.SetProtocol("HTTP/2.0")
	head.SetMethod(r.Method)
	head.SetRequestURIBytes(target)
	head.SetHost(r.Host)
	for name, values := range r.Header {
		if !guard.HasField(name) {
			continue
		}
		for _, value := range values {
			head.Add(name, value)
		}
	}
	return nil
}

// reject responds to a request that breaks a rule of the guard.
func (st *stream) reject(e *guard.Error) error {
	resp := &st.fast.Response
	resp.SetStatusCode(e.Status)
	resp.Header.SetContentType("text/plain; charset=utf-8")
	resp.Header.SetCanonical(headerContentTypeOpt, valueNosniff)
	resp.SetBodyString(e.Reason + "\n")
	err := st.respond()
	st.h.s.rejected(st.conn, e)
	return err
}

// respond sends the response of the RequestCtx. The stream of a body ends here.
func (st *stream) respond() error {
	resp := &st.fast.Response
	body, _ := resp.BodyStream().(*sendfile.Body)
	st.writeHead(body)
	if body == nil {
		if st.fast.IsHead() || resp.SkipBody || len(resp.Body()) == 0 {
			return nil
		}
		_, err := st.Write(resp.Body())
		return err
	}
	st.left = body.Length()
	_, err := body.WriteTo(st)
	return errors.Join(err, resp.CloseBodyStream())
}

// writeHead passes status and header fields to net/http.
func (st *stream) writeHead(body *sendfile.Body) {
	resp, to := &st.fast.Response, st.writer.Header()
	for name, value := range resp.Header.All() {
		switch string(name) {
		case "Connection", "Transfer-Encoding", "Content-Length":
			continue
		}
		to[string(name)] = append(to[string(name)], string(value))
	}
	if len(resp.Header.ContentType()) == 0 {
		to["Content-Type"] = nil // net/http would guess one
	}
	to["Server"] = serverName
	if st.h.s.draining.Load() || resp.ConnectionClose() {
		to["Connection"] = closeConnection // net/http sends GOAWAY in place of it
	}
	length := int64(-1)
	switch {
	case body != nil:
		length = body.Length()
	case len(resp.Body()) > 0:
		length = int64(len(resp.Body()))
	case st.fast.IsHead() && resp.StatusCode() != http.StatusNotModified:
		length = int64(resp.Header.ContentLength())
	}
	if length >= 0 {
		to["Content-Length"] = []string{strconv.FormatInt(length, 10)}
	}
	st.writer.WriteHeader(resp.StatusCode())
}

var (
	serverName      = []string{productName}
	closeConnection = []string{"close"}
)

const (
	smallCopy = 16 << 10  // bytes of a copy for a client that is slow, or not known yet
	largeCopy = 256 << 10 // bytes of a copy for a fast client
	maxCopies = 64        // copies of largeCopy bytes at a time

	fastWrite = 20 * time.Millisecond // a client that takes a write within this time is fast
)

var _ sendfile.Roomer = (*stream)(nil)

// Room implements sendfile.Roomer: copies for clients that do not read are small.
func (st *stream) Room() int {
	if st.fastTook && st.h.copies.Load() < maxCopies {
		return largeCopy
	}
	return smallCopy
}

// Write writes bytes of the body. It waits until the client takes them.
func (st *stream) Write(p []byte) (int, error) {
	large := int64(len(p) / (smallCopy + 1))
	st.h.copies.Add(min(large, 1))
	defer st.h.copies.Add(-min(large, 1))
	began := time.Now()
	st.conn.frames.WriteBegins()
	n, err := st.writer.Write(p)
	st.conn.frames.WriteEnds()
	st.left -= int64(n)
	st.fastTook = time.Since(began) < fastWrite
	return n, st.reason(err)
}

// Flush sends what net/http has buffered, since the next bytes may be late. The last bytes are sent
// together with the end of the stream.
func (st *stream) Flush() error {
	if st.left == 0 {
		return nil
	}
	st.conn.frames.WriteBegins()
	defer st.conn.frames.WriteEnds()
	return st.reason(st.writer.(interface{ FlushError() error }).FlushError())
}

// reason adds to the error of a write that the client was too slow.
func (st *stream) reason(err error) error {
	if err != nil && st.conn.slow.Load() {
		err = fmt.Errorf("%w: %w", sendfile.ErrSlowClient, err)
	}
	return err
}

// onDisconnect calls f, at most once and from another goroutine, if the client resets the stream or
// disconnects before stop is called. stop waits for a running call.
func (st *stream) onDisconnect(f func()) (stop func()) {
	returned := make(chan struct{})
	cancel := context.AfterFunc(st.request, func() {
		defer close(returned)
		defer panics.Contain("reporting a disconnect")
		f()
	})
	return func() {
		if !cancel() {
			<-returned
		}
	}
}
