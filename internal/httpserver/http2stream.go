package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"fastdfs-gateway/internal/httpserver/guard"
	"fastdfs-gateway/internal/httpserver/http2server"
	"fastdfs-gateway/internal/httpserver/sendfile"
	"fastdfs-gateway/internal/process/panics"

	"github.com/valyala/fasthttp"
)

// stream is one HTTP/2 request as an Exchange, so that one Handler serves both protocols, and the
// writer of the body. It is pooled: nothing in it outlives the response.
type stream struct {
	Exchange
	s        *Server
	http     *http2server.Stream
	scratch  []byte
	left     int64 // bytes of the body that were not written
	fastTook bool  // the client took the last write within fastWrite
}

// serveStream responds to one request. http2server resets a stream whose response is incomplete
// when serveStream returns, so that a short body never looks complete.
func (s *Server) serveStream(of *http2server.Stream) {
	st := s.streams.Get().(*stream)
	transport := of.Transport().(*http2Conn)
	st.conn, st.http2, st.pacer = transport.counted, of, &transport.pacer
	st.http, st.fastTook = of, false
	st.Ctx.Init2(transport, nil, true)
	st.serve()
	st.conn, st.http2, st.pacer, st.http = nil, nil, nil, nil
	s.streams.Put(st)
}

// serve checks the request, calls the handler and sends the response.
func (st *stream) serve() {
	defer panics.Contain("serving HTTP/2")
	defer func() {
		st.Ctx.Request.Reset()
		st.Ctx.Response.Reset()
	}()
	if rejected := st.read(&st.http.Request); rejected != nil {
		st.reject(rejected)
		return
	}
	defer st.s.endRequest(st.conn)
	if err := st.s.beginRequest(st.conn); err != nil {
		st.s.handler().Reject(&st.Exchange, err)
	} else {
		st.conn.requests.Add(1)
		st.s.serve(&st.Exchange)
	}
	st.respond()
}

// read fills in the RequestCtx.
func (st *stream) read(r *http2server.Request) (rejected *guard.Error) {
	head := &st.Ctx.Request.Header
	head.SetProtocol("HTTP/2.0")
	head.SetMethod(r.Method) // also of a rejected request: a response to HEAD has no body
	grown, target, rejected := guard.CheckHTTP2(st.scratch, r)
	st.scratch = grown
	if rejected != nil {
		return rejected
	}
	head.SetRequestURIBytes(target)
	head.SetHost(r.Authority)
	for _, f := range r.Fields {
		if guard.HasField(f.Name) {
			head.Add(f.Name, f.Value)
		}
	}
	return nil
}

// reject responds to a request that breaks a rule of the guard.
func (st *stream) reject(e *guard.Error) {
	resp := &st.Ctx.Response
	resp.SetStatusCode(e.Status)
	body, contentType := st.s.guard.Page(e)
	resp.Header.SetContentType(contentType)
	resp.Header.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	resp.SetBodyRaw(body)
	st.respond()
	st.s.handler().Rejected(st.Client(), e)
}

// respond sends the response.
func (st *stream) respond() {
	resp, body := &st.Ctx.Response, st.takeBody()
	st.left = 0 // the previous response of the pooled stream may have ended early
	switch {
	case body != nil:
		st.left = body.Length()
		_ = st.writeHead(body) // on failure the body gets the same error
		_, _ = body.WriteTo(st)
		body.Close()
	case st.Ctx.IsHead() || resp.SkipBody || len(resp.Body()) == 0:
		_ = st.writeHead(nil)
	default:
		st.left = int64(len(resp.Body()))
		if st.writeHead(nil) == nil {
			_, _ = st.Write(resp.Body())
		}
	}
}

// writeHead sends status and header fields.
func (st *stream) writeHead(body *sendfile.Body) error {
	resp := &st.Ctx.Response
	if len(resp.Header.Server()) == 0 {
		resp.Header.SetServer(ServerName)
	}
	length := int64(-1)
	switch {
	case body != nil:
		length = body.Length()
	case resp.StatusCode() == http.StatusNotModified, resp.StatusCode() == http.StatusNoContent:
	case st.Ctx.IsHead() && len(resp.Body()) == 0:
		length = int64(resp.Header.ContentLength())
	default:
		length = int64(len(resp.Body()))
	}
	return st.http.WriteHead(http2server.Head{Status: resp.StatusCode(), Length: length, Fields: st.fields,
		Last: st.s.draining.Load() || resp.ConnectionClose()}, st.left == 0)
}

// fields yields the header fields of the response, without those of an HTTP/1 connection and
// Content-Length.
func (st *stream) fields(yield func(name, value []byte) bool) {
	for name, value := range st.Ctx.Response.Header.All() {
		switch string(name) {
		case "Connection", "Transfer-Encoding", "Content-Length":
			continue
		}
		if !yield(name, value) {
			return
		}
	}
}

const (
	smallCopy = 16 << 10  // bytes of a copy for a slow client, and of the first copy
	largeCopy = 256 << 10 // bytes of a copy for a fast client
	maxCopies = 64        // copies of largeCopy bytes at a time

	fastWrite = 20 * time.Millisecond // a client that takes a write within this time is fast
)

var _ interface {
	sendfile.Flusher
	sendfile.Roomer
} = (*stream)(nil)

// Room implements sendfile.Roomer: copies for slow clients are small, and so are those beyond
// maxCopies.
func (st *stream) Room() int {
	if st.fastTook && st.s.copies.Load() < maxCopies {
		return largeCopy
	}
	return smallCopy
}

// Write writes bytes of the body. It waits while the windows of the client, or the output of the
// connection, have no room for them.
func (st *stream) Write(p []byte) (int, error) {
	large := int64(len(p) / (smallCopy + 1))
	st.s.copies.Add(min(large, 1))
	defer st.s.copies.Add(-min(large, 1))
	began := time.Now()
	n, err := st.http.Write(p, int64(len(p)) == st.left)
	st.left -= int64(n)
	st.fastTook = time.Since(began) < fastWrite
	return n, reason(err)
}

// Flush sends the written bytes, since the next ones may be late. The last bytes are sent together
// with the end of the stream.
func (st *stream) Flush() error {
	if st.left == 0 {
		return nil
	}
	return reason(st.http.Flush())
}

// Buffered implements sendfile.Flusher. The output of the connection makes the records of TLS.
func (st *stream) Buffered() int { return 0 }

// reason wraps the error of a client that was too slow in sendfile.ErrSlowClient.
func reason(err error) error {
	if errors.Is(err, http2server.ErrSlow) {
		err = fmt.Errorf("%w: %w", sendfile.ErrSlowClient, err)
	}
	return err
}

// onReset calls f, at most once and from another goroutine, if the client resets the stream or
// disconnects before stop is called. stop waits for a running call.
func onReset(st *http2server.Stream, f func()) (stop func()) {
	returned := make(chan struct{})
	cancel := context.AfterFunc(st.Context(), func() {
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
