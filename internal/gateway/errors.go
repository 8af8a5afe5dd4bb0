package gateway

import (
	"errors"
	"net/netip"
	"strconv"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/httpserver/guard"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/storage/local"

	"github.com/valyala/fasthttp"
)

// rejection is an error with its response: a status, and one line for the client without internals.
type rejection struct {
	status     int
	reason     string
	retryAfter time.Duration // 0 = no Retry-After
	cause      error         // for the log, never for the client
	closes     bool          // the connection ends after the response
}

func (r *rejection) Error() string { return r.reason }
func (r *rejection) Unwrap() error { return r.cause }

var (
	errBadPath     = &rejection{status: 400, reason: "bad path"}
	errBadEscape   = &rejection{status: 400, reason: "bad path: malformed percent-escape"}
	errBadHost     = &rejection{status: 400, reason: "bad host"}
	errNoGroup     = &rejection{status: 400, reason: "bad path: it does not begin with a group"}
	errBareID      = &rejection{status: 400, reason: "bad path: no group in front, and url_have_group_name is true"}
	errGroupInURL  = &rejection{status: 400, reason: "bad path: begins with a group, and url_have_group_name is false"}
	errBadSeek     = &rejection{status: 400, reason: "start is at or beyond the end"}
	errToken       = &rejection{status: 400, reason: "token refused"}
	errTokenDenied = &rejection{status: 403, reason: "token refused"}
	errAddress     = &rejection{status: 403, reason: "access denied"}
	errReferer     = &rejection{status: 403, reason: "referer refused"}
	errNotFound    = &rejection{status: 404, reason: "file not found"}
	errPrefix      = &rejection{status: 404, reason: "nothing is served here"}
	errMethod      = &rejection{status: 405, reason: "method not allowed"}
	errCondition   = &rejection{status: 412, reason: "precondition failed"}
	errRange       = &rejection{status: 416, reason: "range not satisfiable"}
	errInternal    = &rejection{status: 500, reason: "internal error"}

	errTooManyRequests = &rejection{status: 503, reason: httpserver.ErrTooManyRequests.Error(),
		retryAfter: 5 * time.Second}
	errTooManyPerIP = &rejection{status: 429, reason: httpserver.ErrTooManyPerIP.Error(), retryAfter: 5 * time.Second,
		closes: true}

	errSlotLimit = &rejection{status: 503, reason: local.ErrSlotLimit.Error(), retryAfter: time.Second}

	// Files of other hosts:
	errNotYet     = &rejection{status: 404, reason: "file not found", retryAfter: 5 * time.Second} // not replicated yet
	errClientGone = &rejection{status: 499, reason: "client has left"}                             // for the access log
	errWaiting    = &rejection{status: 503, reason: origin.ErrTooManyWaiting.Error(), retryAfter: time.Second}
	errNoLists    = &rejection{status: 503, reason: origin.ErrNoLists.Error(), retryAfter: 5 * time.Second}
)

// rejectionOf returns the response to an error of the request path. No other place maps errors to
// statuses.
func rejectionOf(err error) *rejection {
	if r, ok := errors.AsType[*rejection](err); ok {
		return r
	}
	switch {
	case errors.Is(err, origin.ErrNotFound): // first, since it is the most frequent one
		return errNotFound
	case errors.Is(err, httpserver.ErrTooManyRequests):
		return errTooManyRequests
	case errors.Is(err, httpserver.ErrTooManyPerIP):
		return errTooManyPerIP
	case errors.Is(err, origin.ErrClientGone):
		return errClientGone
	case errors.Is(err, origin.ErrTooManyWaiting):
		return errWaiting
	case errors.Is(err, origin.ErrNotCached): // of a prefetch
		return &rejection{status: 409, reason: origin.ErrNotCached.Error()}
	case errors.Is(err, origin.ErrNotYet):
		return errNotYet
	case errors.Is(err, origin.ErrNoLists):
		return errNoLists
	case errors.Is(err, origin.ErrTimeout):
		return &rejection{status: 504, reason: origin.ErrTimeout.Error(), cause: err}
	case errors.Is(err, origin.ErrBusy):
		return &rejection{status: 503, reason: origin.ErrBusy.Error(), retryAfter: 5 * time.Second, cause: err}
	case errors.Is(err, origin.ErrUnreachable):
		return &rejection{status: 502, reason: origin.ErrUnreachable.Error(), cause: err}
	case errors.Is(err, fdfs.ErrFileID):
		return &rejection{status: 400, reason: err.Error()}
	case errors.Is(err, local.ErrPathIndex):
		return &rejection{status: 400, reason: "bad file id: no such store path"}
	case errors.Is(err, fdfs.ErrNoFile), errors.Is(err, local.ErrNoGroup),
		errors.Is(err, local.ErrSlotContent):
		return errNotFound
	case errors.Is(err, local.ErrSlotLimit):
		return errSlotLimit
	case errors.Is(err, fdfs.ErrFileChanged):
		return &rejection{status: 503, reason: "the file is changing", retryAfter: time.Second, cause: err}
	case errors.Is(err, local.ErrUnavailable):
		return &rejection{status: 503, reason: "storage is not available", retryAfter: 5 * time.Second, cause: err}
	}
	return &rejection{status: 500, reason: errInternal.reason, cause: err}
}

// resetHeader removes all that was set in the head of the response.
func (r *request) resetHeader() {
	r.ctx.Response.Header.Reset()
	r.ctx.Response.Header.SetNoDefaultContentType(true)
}

// reject responds with the rejection of err, and removes the headers of a file.
func (r *request) reject(err error) {
	why := rejectionOf(err)
	resp := &r.ctx.Response
	r.resetHeader()
	resp.ResetBody()
	if why.cause != nil && why.status >= 500 {
		r.h.log.Error("cannot serve request", "target", r.shortTarget(), "status", why.status, "err", why.cause)
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
	if why.closes {
		h.SetConnectionClose()
	}
	if why.retryAfter > 0 {
		h.Set(fasthttp.HeaderRetryAfter, strconv.Itoa(int(why.retryAfter/time.Second)))
	}
	if page := r.h.errorPage(why.status); page != nil {
		h.SetContentType(page.Type)
		resp.SetBodyRaw(page.Body)
		return
	}
	resp.AppendBodyString(why.reason)
	resp.AppendBodyString("\n")
}

// Reject implements httpserver.Handler.
func (h *Handler) Reject(x *httpserver.Exchange, reason error) {
	r := h.beginRequest(x)
	r.reject(reason)
	r.finishUnstreamed()
}

// Rejected implements httpserver.Handler: it counts and logs the request.
func (h *Handler) Rejected(client netip.Addr, e *guard.Error) {
	h.o.Metrics.count(outcome{e.Status, sourceNone})
	if h.o.Access != nil {
		h.o.Access.write(entry{at: time.Now(), remote: client, line: e.Line, status: e.Status, source: sourceNone,
			err: e})
	}
}

// Page implements httpserver.Handler.
func (h *Handler) Page(status int) (body []byte, contentType string) {
	if page := h.errorPage(status); page != nil {
		return page.Body, page.Type
	}
	return nil, ""
}

// errorPage returns the page of Options.ErrorPages for a status; nil if it has none. The page of a
// status has priority over the one of its class.
func (h *Handler) errorPage(status int) *Page {
	if page := h.o.ErrorPages[status]; page != nil {
		return page
	}
	return h.o.ErrorPages[status/100]
}
