// Package gateway serves files of a FastDFS store by HTTP.
//
// A Handler holds one configuration, never changes, and serves any number of requests at once (see
// the example of NewHandler).
//
// This file is the path of a request, from top to bottom: admit the client, parse the target, check
// the token, find the file, send it. Each step may end the path with an error. Only rejectionOf in
// errors.go turns errors into statuses.
package gateway

import (
	"cmp"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/httpserver/clientaddr"
	"fastdfs-gateway/internal/httpserver/fileselect"
	"fastdfs-gateway/internal/httpserver/httprange"
	"fastdfs-gateway/internal/httpserver/sendfile"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/internal/process/logfile"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/variant"
	"fastdfs-gateway/storage/local"

	"github.com/valyala/fasthttp"
)

// Options configure a Handler. The zero value of each field is its documented default.
type Options struct {
	Store      Store
	GroupInURL bool   // URLs are /group/Mxx/HH/LL/name, else /Mxx/HH/LL/name
	Group      string // the group of URLs that name none
	URLPrefix  string // cut off in front of the path, e.g. "/files"

	Tokens                  *antisteal.Checker // nil = no request needs a token
	BypassName, BypassValue string             // request header that makes a token unnecessary; empty name = none
	FailFile                *Page              // sent with 200 for a rejected token; nil = FailStatus
	FailStatus              int                // 400 (default) or 403

	Types       map[string]string // content type by extension, lower case, without dot
	DefaultType string            // for other extensions; default application/octet-stream

	ActiveContent ActiveContent // default ActiveSandbox

	FLVExtension string // extension with pseudo-streaming by start= and end=; empty = none
	MaxRanges    int    // more ranges in one request get the whole file; default 16

	// FilenameParameters are the query parameters that give a file a name for saving it; the first
	// one present counts. Default: filename, attname.
	FilenameParameters []string

	CacheControl string          // Cache-Control of files; empty = none
	CORS         CORS            // no origins = no headers of CORS
	Headers      []HeaderSection // further headers of files; the last section with a name counts for a file
	ErrorPages   map[int]*Page   // bodies of errors by status, or by its first digit; nil = one line of text
	DropBehind   int64           // least bytes of a response whose pages leave the page cache; 0 = no response
	XCache       bool            // send X-Cache

	Index []byte // HTML page for the path "/"; nil = 400, as for any path without a file id

	Images *variant.Rules // variants of pictures; nil = none

	Origin         Origin // finds files of other hosts; nil = 404 for these
	PlainPort      int    // of other hosts' web servers, for requests by TLS; 0 = the local port of the request
	RedirectScheme string // of redirect targets; empty = that of the request
	RedirectPort   int    // of redirect targets; 0 = the local port of the request

	Proxies *clientaddr.Proxies // trusted to name the client of a request; nil = none
	Rules   *Rules              // select the requests that are served; nil = all requests
	// RuleSections replace Rules for selected files. If several sections for a file replace one
	// rule, the last one counts.
	RuleSections []RuleSection
	// HealthPath is a path with status 200, or 503 if Ready returns an error. No rule applies to
	// it, and it has no log line and no metrics. Empty = none.
	HealthPath string
	Ready      func() error
	// HTTPSPort is the port to which plain requests are redirected by https; 0 = no redirect.
	HTTPSPort int

	LogTokens bool // show tokens in logged targets

	Log     *slog.Logger // default: slog.Default()
	Access  *AccessLog   // nil = none
	Metrics *Metrics     // default: counters that nothing exports
}

// Store opens the files of this host: a local.Store, or a local.FileCache in front of one.
type Store interface {
	// Open opens a file, which the caller closes.
	Open(id fdfs.FileID) (*local.File, error)
	// Path returns the path at which the file would be, for messages.
	Path(id fdfs.FileID) (string, error)
}

var (
	_ Store = (*local.Store)(nil)
	_ Store = (*local.FileCache)(nil)
)

// Page is a body that replaces a file, or the text of an error.
type Page struct {
	Body []byte
	Type string // content type
}

// Handler serves requests by one configuration.
type Handler struct {
	o     Options
	log   *slog.Logger // rate-limited, since clients can cause its lines
	forms *logfile.Warner
	allow string    // value of Allow
	pool  sync.Pool // of *request
	owner *byte     // identifies the handler that owns a fileInfo

	cors    *cors                             // nil = none
	headers *fileselect.Choices[*fileHeaders] // nil = none
	rules   *fileselect.Choices[*Rules]       // by file; nil = Options.Rules for all files
}

// NewHandler returns a handler for the options.
func NewHandler(o Options) *Handler {
	o.MaxRanges = cmp.Or(o.MaxRanges, 16)
	o.FailStatus = cmp.Or(o.FailStatus, errToken.status)
	o.DefaultType = cmp.Or(o.DefaultType, "application/octet-stream")
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.Origin == nil {
		o.Origin = origin.NewResolver(origin.Options{})
	}
	o.URLPrefix = strings.TrimRight(o.URLPrefix, "/")
	if o.FilenameParameters == nil {
		o.FilenameParameters = []string{"filename", "attname"}
	}
	h := &Handler{o: o, log: logfile.Limit(o.Log), forms: logfile.NewWarner(o.Log), allow: "GET, HEAD",
		owner: new(byte), cors: newCORS(o.CORS)}
	h.headers = newHeaders(o.Headers, h.cors)
	h.rules = newRules(o.Rules, o.RuleSections)
	if h.cors != nil {
		h.allow += ", OPTIONS"
	}
	h.pool.New = func() any { return newRequest(h) }
	return h
}

// request is the state of one request. It is pooled: nothing in it outlives the response.
type request struct {
	h      *Handler
	x      *httpserver.Exchange
	ctx    *fasthttp.RequestCtx // of x
	now    time.Time
	client netip.Addr // set by findClient; invalid = the address of the connection, see clientAddr
	proto  []byte     // scheme that a trusted proxy names; nil = none
	host   []byte     // Host field that a trusted proxy names; nil = none
	quiet  bool       // the request is neither counted nor logged
	target target
	rules  *Rules      // of this request; nil = none
	id     fdfs.FileID // canonical, once the token is checked
	file   *local.File
	open   bool      // closeFile has to close file
	info   *fileInfo // of file, or of remote.File
	rep    representation
	remote origin.Request // for a file of another host
	trace  *trace         // nil = the request is served, not explained
	source string         // one of the source constants, for metrics and logs
	stale  bool           // the metadata of the file has expired

	validators httprange.Validators
	body       sendfile.Body
	streamed   bool // the response has body as its body
	buffers
}

// buffers are the parts of a request that the next one uses again.
type buffers struct {
	conditions httprange.Conditions
	ranges     [][]byte // lines of the Range field
	spans      []httprange.Span
	name       []byte                // for the text of id
	text       []byte                // for header values and part heads
	done       func(sendfile.Result) // sent
}

// Sources of responses: the values of the label source.
const (
	sourceNone     = "none" // response without a file
	sourceLocal    = "local"
	sourceMemory   = "memory"   // file of this or another host, in memory
	sourceDisk     = "disk"     // file of another host, in the disk tier
	sourcePeer     = "peer"     // fetched from another gateway
	sourceOrigin   = "origin"   // fetched from another host
	sourceRedirect = "redirect" // the client was sent to another host
)

func newRequest(h *Handler) *request {
	r := &request{h: h}
	r.remote.Client = r
	r.done = r.sent
	r.body.Done = r.done
	return r
}

var _ httpserver.Handler = (*Handler)(nil)

// Serve implements httpserver.Handler.
func (h *Handler) Serve(x *httpserver.Exchange) {
	r := h.beginRequest(x)
	if err := r.withRecover(); err != nil {
		r.closeFile()
		r.streamed = false
		r.reject(err)
	}
	if r.streamed { // r.sent ends the request after the last byte
		x.Send(&r.body)
		return
	}
	r.finishUnstreamed()
}

// beginRequest returns the state of a request from the pool.
func (h *Handler) beginRequest(x *httpserver.Exchange) *request {
	r := h.pool.Get().(*request)
	r.x, r.ctx, r.now, r.source = x, &x.Ctx, x.Ctx.ConnTime(), sourceNone // ConnTime: set by Init2
	if r.now.IsZero() {                                                   // a RequestCtx without a Server
		r.now = time.Now()
	}
	r.ctx.Response.Header.SetNoDefaultContentType(true)
	return r
}

// finishUnstreamed ends a request whose response is complete in memory.
func (r *request) finishUnstreamed() {
	bytes := len(r.ctx.Response.Body())
	if r.ctx.IsHead() {
		bytes = 0
	}
	r.finish(int64(bytes), time.Time{}, nil)
}

// withRecover turns a panic, which is a bug, into a 500. The process continues.
func (r *request) withRecover() (err error) {
	defer func() {
		if p := recover(); p != nil {
			panics.Report(p, "serving a request", "target", r.shortTarget())
			err = errInternal
		}
	}()
	return r.serve()
}

// serve parses, authorizes, finds and responds.
func (r *request) serve() error {
	if done, err := r.admit(); done || err != nil {
		return err
	}
	if r.h.o.HTTPSPort != 0 && r.scheme() == "http" {
		r.trace.answer("a redirect to the same URL by https (tls_redirect)")
		return r.redirectToHTTPS()
	}
	if done, err := r.method(); done || err != nil {
		return err
	}
	if r.h.o.Index != nil && string(r.ctx.Path()) == "/" {
		r.trace.answer("the index page")
		r.sendPage("text/html; charset=utf-8", r.h.o.Index)
		return nil
	}
	if err := r.findID(); err != nil {
		return err
	}
	if err := r.readVariant(); err != nil {
		return err
	}
	if served, err := r.checkToken(); served || err != nil {
		return err
	}
	r.name = r.id.MakeCanonical(r.name)
	if r.trace != nil && r.id.Asked != "" && r.id.Asked != r.id.Logic {
		r.trace.step("known as", "%s, like all ids of this file", r.id)
	}
	if r.target.picked != nil {
		return r.sendVariant()
	}
	return r.sendFile()
}

// sendFile finds the file, or its variant, and responds.
func (r *request) sendFile() error {
	err := r.findAndRespond(nil)
	var diskErr error
	switch {
	// The file changed between the request for its size and the download, or after the check of its
	// trunk slot. No byte has been sent yet, so a second attempt reads the new version.
	case errors.Is(err, fdfs.ErrFileChanged):
	case r.file != nil && errors.Is(err, local.ErrUnavailable): // the disk failed after the file was opened
		diskErr = err
	default:
		return err
	}
	r.startOver()
	return r.findAndRespond(diskErr)
}

// findAndRespond responds with the file. diskErr is the error of reading it from the disk of this
// host; nil = none yet.
func (r *request) findAndRespond(diskErr error) error {
	r.file, r.info, r.stale = nil, nil, false // the first attempt may have set these, and body
	r.body = sendfile.Body{Done: r.done, Pieces: r.body.Pieces[:0]}
	if responded, err := r.find(diskErr); responded || err != nil {
		return err
	}
	if r.trace != nil {
		r.trace.answer("the file of this host")
		return nil
	}
	return r.respond()
}

// method passes GET and HEAD, and responds to OPTIONS if CORS is configured.
func (r *request) method() (done bool, err error) {
	switch string(r.ctx.Method()) {
	case fasthttp.MethodGet, fasthttp.MethodHead:
		return false, nil
	case fasthttp.MethodOptions:
		if r.h.cors != nil {
			r.preflight()
			return true, nil
		}
	}
	return true, errMethod
}

// find opens the file on this host, or searches the other hosts. responded is true if the client
// was redirected.
func (r *request) find(diskErr error) (responded bool, err error) {
	if r.target.variantName() != "" {
		return r.findVariant()
	}
	file, err := (*local.File)(nil), diskErr
	if diskErr == nil {
		file, err = r.h.o.Store.Open(r.id)
	}
	if r.trace != nil {
		r.traceLocal(file, err)
	}
	switch {
	case err == nil:
		r.foundHere(file)
		return false, nil
	case errors.Is(err, local.ErrSlotContent):
		r.h.log.Warn("trunk slot is not served", "target", r.shortTarget(), "err", err)
		return false, errNotFound
	case !mayBeElsewhere(err):
		return false, err
	}
	return r.findElsewhere(err)
}

// findElsewhere searches other hosts for a file that the local store failed to open. If they do not
// have it either, and the store is not available, that is the cause.
func (r *request) findElsewhere(localErr error) (responded bool, err error) {
	responded, err = r.findRemote(localErr)
	switch {
	case !errors.Is(localErr, local.ErrUnavailable), errors.Is(err, origin.ErrClientGone),
		errors.Is(err, fdfs.ErrFileChanged):
		return responded, err
	case err != nil:
		return false, localErr
	}
	if r.trace == nil {
		r.h.log.Error("cannot read the store, the file came from another host", "target", r.shortTarget(),
			"err", localErr)
	}
	return responded, nil
}

// mayBeElsewhere reports whether another host may have a file that the local store failed to open.
// A store path that the group does not have is on no host. A slot with other content has the same
// bytes on all replicas.
func mayBeElsewhere(localErr error) bool {
	return errors.Is(localErr, fdfs.ErrNoFile) || errors.Is(localErr, local.ErrNoGroup) ||
		errors.Is(localErr, local.ErrUnavailable)
}

// foundHere makes the request the owner of a file of this host.
func (r *request) foundHere(file *local.File) {
	r.file, r.source, r.info = file, sourceLocal, r.h.localInfo(file, r.id, r.now)
	r.open = true
	r.h.o.Metrics.openFiles.Inc()
	switch {
	case file.InMemory():
		r.source = sourceMemory
		r.closeFile()
	case file.Copied():
		r.source = sourceMemory
	}
}

// startOver undoes an attempt to respond of which nothing was sent.
func (r *request) startOver() {
	r.closeFile()
	r.resetHeader()
}

// closeFile releases the file if it is open.
func (r *request) closeFile() {
	r.remote.File.Close()
	if !r.open {
		return
	}
	r.open = false
	r.h.o.Metrics.openFiles.Dec()
	if err := r.file.Close(); err != nil {
		r.h.log.Error("cannot close file", "id", r.id.String(), "err", err)
	}
}

// sent ends the request after the last byte of the body, or after a failure.
func (r *request) sent(result sendfile.Result) {
	r.closeFile()
	r.h.o.Metrics.sendfileBytes.Add(float64(result.BySendfile))
	if result.Err != nil {
		r.aborted(result)
	}
	r.finish(result.Sent, result.FirstByte, result.Err)
}

// aborted counts a response that ended early, and logs it unless the client was the cause.
func (r *request) aborted(result sendfile.Result) {
	reason := "client"
	switch {
	case errors.Is(result.Err, sendfile.ErrSource):
		reason = "file"
		if r.file != nil {
			r.file.Suspect()
		}
		r.h.log.Error("response aborted", "target", r.shortTarget(), "sent", result.Sent, "err", result.Err)
	case errors.Is(result.Err, sendfile.ErrSlowClient):
		reason = "slow"
	case errors.Is(result.Err, sendfile.ErrPanic):
		reason = "bug"
		r.h.log.Error("response aborted", "target", r.shortTarget(), "sent", result.Sent, "err", result.Err)
	}
	r.h.o.Metrics.abortedTotal.WithLabelValues(reason).Inc()
}

// shortTarget returns the first 256 bytes of the target for a log, without token unless LogTokens.
func (r *request) shortTarget() string {
	shown := r.ctx.RequestURI()
	if !r.h.o.LogTokens {
		_, shown = appendMasked(nil, shown)
	}
	return string(shown[:min(len(shown), 256)])
}

// finish counts and logs the response, and returns r to the pool. A zero firstByte means that the
// first and the last byte were sent together.
func (r *request) finish(bytes int64, firstByte time.Time, err error) {
	if !r.quiet {
		r.h.o.Metrics.responded(r, bytes, firstByte)
		if access := r.h.o.Access; access != nil && !access.skips(r) {
			access.write(entryOf(r, bytes, err))
		}
	}
	h := r.h
	r.remote.Reset()
	*r = request{h: h, remote: r.remote, target: target{scratch: r.target.scratch[:0]},
		body: sendfile.Body{Done: r.done, Pieces: r.body.Pieces[:0]}, buffers: r.buffers}
	h.pool.Put(r)
}
