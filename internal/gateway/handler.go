// Package gateway answers HTTP requests for files of a FastDFS store.
//
// A Handler is one configuration at work; it never changes and may serve any number of requests at once:
//
//	h := gateway.NewHandler(gateway.Options{Store: local, GroupInURL: true, Types: types})
//	s := gateway.NewServer(gateway.ServerOptions{ReadTimeout: 10 * time.Second}, h)
//	err := s.Serve(listener)
//
// One request's way stands in this file, top to bottom: parse the target, check the token, find the file, send it. Each step
// may end it with an error; refusalOf in errors.go is the only place that turns errors into statuses.
package gateway

import (
	"bytes"
	"errors"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unsafe"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httprange"
	"fastdfs-gateway/internal/sendfile"
	"fastdfs-gateway/storage"

	"github.com/valyala/fasthttp"
)

// Options say what a Handler serves and how. The zero value of each field is its documented default.
type Options struct {
	Store      *storage.Local
	GroupInURL bool   // URLs are /group/Mxx/HH/LL/name, else /Mxx/HH/LL/name
	Group      string // the group of URLs that name none
	URLPrefix  string // cut off in front of the path, e.g. "/files"

	Tokens                  *antisteal.Checker // nil = nobody needs a token
	BypassName, BypassValue string             // request header that makes a token unnecessary; empty name = none
	FailFile                *FailFile          // sent with 200 to a refused token; nil = FailStatus
	FailStatus              int                // 400 (default) or 403

	Types       map[string]string // content type by extension, lower case, without dot
	DefaultType string            // for other extensions; default application/octet-stream

	FLVExtension string // extension with pseudo-streaming by start= and end=; empty = none
	MaxRanges    int    // more ranges in one request get the whole file; default 16
	SingleRange  bool   // a request for several ranges gets the whole file

	CacheControl string // Cache-Control of files; empty = none
	CORSOrigin   string // Access-Control-Allow-Origin; empty = none
	XCache       bool   // send X-Cache

	// SyncDelay is how long after its creation a file may still be on its way to this host.
	SyncDelay time.Duration

	Log     *slog.Logger // default: slog.Default()
	Access  *AccessLog   // nil = none
	Metrics *Metrics     // default: counted, but shown nowhere
}

// FailFile is what a client sees instead of a file when its token is refused.
type FailFile struct {
	Body []byte
	Type string // content type
}

// Handler answers requests by one configuration.
type Handler struct {
	Options
	log   *slog.Logger
	allow string // value of Allow
	away  elsewhere
	pool  sync.Pool // of *request
}

// NewHandler returns a handler for the options.
func NewHandler(o Options) *Handler {
	if o.MaxRanges == 0 {
		o.MaxRanges = 16
	}
	if o.FailStatus == 0 {
		o.FailStatus = errToken.status
	}
	if o.DefaultType == "" {
		o.DefaultType = "application/octet-stream"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	o.URLPrefix = strings.TrimRight(o.URLPrefix, "/")
	h := &Handler{Options: o, log: o.Log, allow: "GET, HEAD", away: notHere{}}
	if o.CORSOrigin != "" {
		h.allow += ", OPTIONS"
	}
	h.pool.New = func() any { return newRequest(h) }
	return h
}

// request is one request on its way. It is reused; nothing in it outlives the answer.
type request struct {
	h      *Handler
	ctx    *fasthttp.RequestCtx
	now    time.Time
	target target
	id     fdfs.FileID
	file   *storage.File
	open   bool   // file is open: from find until the answer is out
	source string // where the answer comes from, for metrics and logs

	conditions httprange.Conditions
	ranges     [][]byte // lines of the Range field
	validators httprange.Validators
	spans      []httprange.Span
	text       []byte // scratch for header values and part heads
	body       sendfile.Body
}

// Sources, as the metrics name them.
const (
	sourceNone  = "none" // answered without a file
	sourceLocal = "local"
)

func newRequest(h *Handler) *request {
	r := &request{h: h}
	r.body.Done = r.sent
	return r
}

// Serve answers one request.
func (h *Handler) Serve(ctx *fasthttp.RequestCtx) {
	r := h.pool.Get().(*request)
	r.ctx, r.now, r.source = ctx, ctx.Time(), sourceNone
	if err := r.guarded(); err != nil {
		r.closeFile()
		r.refuse(err)
	}
	if !ctx.Response.IsBodyStream() { // else sent is called when the last byte is out
		bytes := len(ctx.Response.Body())
		if ctx.IsHead() {
			bytes = 0
		}
		r.finish(int64(bytes), time.Now(), nil)
	}
}

// guarded turns a panic, which is a bug, into a 500 instead of the end of the process.
func (r *request) guarded() (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.h.log.Error("BUG: panic while answering", "target", string(r.ctx.RequestURI()), "panic", p, "stack", string(debug.Stack()))
			err = errInternal
		}
	}()
	return r.serve()
}

// serve is the way of a request.
func (r *request) serve() error {
	if done, err := r.method(); done || err != nil {
		return err
	}
	if err := r.parse(); err != nil {
		return err
	}
	if served, err := r.checkToken(); served || err != nil {
		return err
	}
	if err := r.find(); err != nil {
		return err
	}
	return r.respond()
}

// method lets GET and HEAD pass and answers OPTIONS for browsers where CORS is configured.
func (r *request) method() (done bool, err error) {
	switch string(r.ctx.Method()) {
	case fasthttp.MethodGet, fasthttp.MethodHead:
		return false, nil
	case fasthttp.MethodOptions:
		if r.h.CORSOrigin != "" {
			r.preflight()
			return true, nil
		}
	}
	return true, errMethod
}

// parse turns the target into a file id.
func (r *request) parse() error {
	if err := r.target.parse(r.ctx.Request.Header.RequestURI()); err != nil {
		return err
	}
	path := r.target.path
	if prefix := r.h.URLPrefix; prefix != "" {
		rest, ok := bytes.CutPrefix(path, stringBytes(prefix))
		if !ok || len(rest) == 0 || rest[0] != '/' {
			return errPrefix
		}
		path = rest
	}
	name := bytesString(path[1:])
	var err error
	if r.h.GroupInURL {
		if strings.IndexByte(name, '/') <= 0 {
			return errNoGroup
		}
		r.id, err = fdfs.Parse(name)
	} else {
		r.id, err = fdfs.ParseLogic(r.h.Group, name)
	}
	return err
}

// checkToken refuses a request without a good token where tokens are wanted. It is served when the operator's page for such
// requests was the answer.
func (r *request) checkToken() (served bool, err error) {
	h := r.h
	if h.Tokens == nil || h.BypassName != "" && string(r.ctx.Request.Header.Peek(h.BypassName)) == h.BypassValue {
		return false, nil
	}
	q := &r.target.params
	err = h.Tokens.Check(r.id.Logic, q.token, q.ts, r.now)
	if err == nil {
		return false, nil
	}
	h.Metrics.tokenRefused(err)
	switch {
	case h.FailFile != nil:
		r.sendFailFile()
		return true, nil
	case h.FailStatus == errTokenDenied.status:
		return false, errTokenDenied
	}
	return false, errToken
}

// find opens the file where it lies on this host, or leaves it to the hosts that may have it.
func (r *request) find() error {
	file, err := r.h.Store.Open(r.id)
	switch {
	case err == nil:
		r.file, r.open, r.source = file, true, sourceLocal
		r.h.Metrics.openFiles.Inc()
		return nil
	case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrNoGroup):
		return r.h.away.serve(r, err)
	}
	return err
}

// closeFile gives the file back when the answer does not need it.
func (r *request) closeFile() {
	if !r.open {
		return
	}
	r.open = false
	r.h.Metrics.openFiles.Dec()
	if err := r.file.Close(); err != nil {
		r.h.log.Error("cannot close file", "id", r.id.String(), "err", err)
	}
}

// sent is told by the body that the last byte is out, or that none will follow.
func (r *request) sent(result sendfile.Result) {
	r.open = false
	r.h.Metrics.openFiles.Dec()
	r.h.Metrics.sendfileBytes.Add(float64(result.BySendfile))
	first := result.FirstByte
	if first.IsZero() {
		first = time.Now()
	}
	r.finish(result.Sent, first, result.Err)
}

// finish counts and logs the answer, and makes r ready for the next request.
func (r *request) finish(bytes int64, firstByte time.Time, err error) {
	r.h.Metrics.answered(r, bytes, firstByte)
	if r.h.Access != nil {
		r.h.Access.write(entryOf(r, bytes, err))
	}
	if errors.Is(err, sendfile.ErrSlowClient) {
		r.h.Metrics.slowClients.Inc()
	}
	h := r.h
	r.ctx, r.id, r.file = nil, fdfs.FileID{}, nil
	r.target = target{scratch: r.target.scratch[:0]}
	c := &r.conditions
	c.IfMatch, c.IfNoneMatch, c.IfRange, r.ranges = c.IfMatch[:0], c.IfNoneMatch[:0], c.IfRange[:0], r.ranges[:0]
	c.IfModifiedSince, c.IfUnmodifiedSince = c.IfModifiedSince[:0], c.IfUnmodifiedSince[:0]
	r.body = sendfile.Body{Done: r.body.Done, Pieces: r.body.Pieces[:0]}
	r.spans, r.text = r.spans[:0], r.text[:0]
	h.pool.Put(r)
}

// bytesString reads bytes as a string without a copy; it is good while the request is.
func bytesString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// stringBytes is the other way; what it returns must not be written to.
func stringBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
