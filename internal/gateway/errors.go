package gateway

import (
	"errors"
	"strconv"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/storage/local"

	"github.com/valyala/fasthttp"
)

// refusal is an error that is itself the answer: a status and one line for the client, without
// internals.
type refusal struct {
	status     int
	reason     string
	retryAfter time.Duration // 0 = no Retry-After
	cause      error         // for the log, never for the client
}

func (r *refusal) Error() string { return r.reason }
func (r *refusal) Unwrap() error { return r.cause }

var (
	errBadPath     = &refusal{status: 400, reason: "bad path"}
	errBadEscape   = &refusal{status: 400, reason: "bad path: malformed percent-escape"}
	errNoGroup     = &refusal{status: 400, reason: "bad path: it does not begin with a group"}
	errBadSeek     = &refusal{status: 400, reason: "start is at or beyond the end"}
	errToken       = &refusal{status: 400, reason: "token refused"}
	errTokenDenied = &refusal{status: 403, reason: "token refused"}
	errNotFound    = &refusal{status: 404, reason: "file not found"}
	errPrefix      = &refusal{status: 404, reason: "nothing is served here"}
	errMethod      = &refusal{status: 405, reason: "method not allowed"}
	errCondition   = &refusal{status: 412, reason: "precondition failed"}
	errRange       = &refusal{status: 416, reason: "range not satisfiable"}
	errInternal    = &refusal{status: 500, reason: "internal error"}

	errSlotLimit = &refusal{status: 503, reason: local.ErrSlotLimit.Error(), retryAfter: time.Second}

	// Files of other hosts:
	errNotYet  = &refusal{status: 404, reason: "file not found", retryAfter: 5 * time.Second} // still being replicated
	errGone    = &refusal{status: 499, reason: "client has left"}                             // for the access log
	errWaiting = &refusal{status: 503, reason: origin.ErrTooManyWaiting.Error(), retryAfter: time.Second}
	errNoLists = &refusal{status: 503, reason: origin.ErrNoLists.Error(), retryAfter: 5 * time.Second}
)

// refusalOf turns any error of the request path into the answer to it. This is the one place that
// maps errors to statuses.
func refusalOf(err error) *refusal {
	var r *refusal
	switch {
	case errors.As(err, &r):
		return r
	case errors.Is(err, origin.ErrClientGone):
		return errGone
	case errors.Is(err, origin.ErrTooManyWaiting):
		return errWaiting
	case errors.Is(err, origin.ErrNotFound):
		return errNotFound
	case errors.Is(err, origin.ErrNotYet):
		return errNotYet
	case errors.Is(err, origin.ErrNoLists):
		return errNoLists
	case errors.Is(err, origin.ErrTimeout):
		return &refusal{status: 504, reason: origin.ErrTimeout.Error(), cause: err}
	case errors.Is(err, origin.ErrBusy):
		return &refusal{status: 503, reason: origin.ErrBusy.Error(), retryAfter: 5 * time.Second, cause: err}
	case errors.Is(err, origin.ErrUnreachable):
		return &refusal{status: 502, reason: origin.ErrUnreachable.Error(), cause: err}
	case errors.Is(err, fdfs.ErrFileID):
		return &refusal{status: 400, reason: err.Error()}
	case errors.Is(err, local.ErrPathIndex):
		return &refusal{status: 400, reason: "bad file id: no such store path"}
	case errors.Is(err, fdfs.ErrNoFile), errors.Is(err, local.ErrNoGroup),
		errors.Is(err, local.ErrSlotContent):
		return errNotFound
	case errors.Is(err, local.ErrSlotLimit):
		return errSlotLimit
	case errors.Is(err, fdfs.ErrFileChanged):
		return &refusal{status: 503, reason: "the file is changing", retryAfter: time.Second, cause: err}
	case errors.Is(err, local.ErrUnavailable):
		return &refusal{status: 503, reason: "storage is not available", retryAfter: 5 * time.Second, cause: err}
	}
	return &refusal{status: 500, reason: errInternal.reason, cause: err}
}

// refuse answers with the error. Headers that belong to a file are taken back.
func (r *request) refuse(err error) {
	why := refusalOf(err)
	resp := &r.ctx.Response
	resp.Header.Reset()
	resp.ResetBody()
	if why.cause != nil && why.status >= 500 {
		r.h.log.Error("cannot answer", "target", r.shortTarget(), "status", why.status, "err", why.cause)
	}
	resp.SetStatusCode(why.status)
	h := &resp.Header
	h.SetContentType("text/plain; charset=utf-8")
	h.SetCanonical(headerContentTypeOpt, valueNosniff)
	r.setCORS()
	switch why.status {
	case fasthttp.StatusMethodNotAllowed:
		h.Set(fasthttp.HeaderAllow, r.h.allow)
	case fasthttp.StatusRequestedRangeNotSatisfiable:
		h.Set(fasthttp.HeaderContentRange, "bytes */"+strconv.FormatInt(r.rep.size(), 10))
	}
	if why.retryAfter > 0 {
		h.Set(fasthttp.HeaderRetryAfter, strconv.Itoa(int(why.retryAfter/time.Second)))
	}
	resp.AppendBodyString(why.reason)
	resp.AppendBodyString("\n")
}
