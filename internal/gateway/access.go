package gateway

import (
	"bytes"
	"math"
	"time"

	"fastdfs-gateway/internal/httpserver/access"
	"fastdfs-gateway/internal/httpserver/clientaddr"
	"fastdfs-gateway/internal/httpserver/sendfile"

	"github.com/valyala/fasthttp"
)

// Rules decide which requests are served, in this order. The token comes after them.
type Rules struct {
	Deny        *clientaddr.Networks // of clients: 403; nil = none
	Allow       *clientaddr.Networks // all other clients get 403; nil = all are allowed
	Requests    *access.Limiter      // per address: 429 beyond; nil = no limit
	Referers    *access.Referers     // of GET and HEAD: 403 for others; nil = all
	RefererFile *Page                // sent with 200 in place of 403 for the referer; nil = none
	SendRate    int64                // bytes per second of one response; 0 = no limit
	SendAfter   int64                // bytes of it that are sent before the limit holds

	ByFile []FileRules // of selected files, in place of Deny, Allow, Referers and RefererFile; later ones win
}

// The reasons of Rules, as labels.
const (
	deniedByAddress = "address"
	deniedByRate    = "rate"
	deniedByReferer = "referer"
)

// admit finds the client of the request and applies the rules to it. done is true if the response
// is set.
func (r *request) admit() (done bool, err error) {
	o := &r.h.o
	if o.HealthPath != "" && r.asksHealth() {
		r.health()
		return true, nil
	}
	if o.Proxies != nil {
		if err := r.findClient(); err != nil {
			return false, err
		}
	}
	if o.Rules == nil {
		return false, nil
	}
	if err := r.checkClient(); err != nil || len(o.Rules.ByFile) > 0 {
		return false, err // see admitFile
	}
	return r.checkReferer(o.Rules)
}

// asksHealth reports whether the request is for HealthPath.
func (r *request) asksHealth() bool {
	path, _, _ := bytes.Cut(originForm(r.ctx.Request.Header.RequestURI()), []byte{'?'})
	return string(path) == r.h.o.HealthPath && (r.ctx.IsGet() || r.ctx.IsHead())
}

// health responds like /readyz of the admin listener.
func (r *request) health() {
	r.quiet = true
	body := "ready\n"
	if r.h.o.Ready != nil {
		if err := r.h.o.Ready(); err != nil {
			r.ctx.SetStatusCode(fasthttp.StatusServiceUnavailable)
			body = "not ready\n" // the reason names paths: the admin listener has it
		}
	}
	h := &r.ctx.Response.Header
	h.SetContentType("text/plain; charset=utf-8")
	h.SetCanonical(headerCacheControl, []byte("no-store"))
	r.ctx.Response.SetBodyString(body)
}

// checkClient applies the rules about the client's address.
func (r *request) checkClient() error {
	rules, client := r.h.o.Rules, r.clientAddr()
	if len(rules.ByFile) == 0 { // else see admitFile
		if err := r.checkNetwork(rules); err != nil {
			return err
		}
	}
	if rules.Requests == nil || !client.IsValid() {
		return nil
	}
	if wait := rules.Requests.Allow(blockOf(client), r.now); wait > 0 {
		r.h.o.Metrics.rejectedAccess.WithLabelValues(deniedByRate).Inc()
		seconds := min(math.Ceil(wait.Seconds()), float64(time.Hour/time.Second))
		return &rejection{status: fasthttp.StatusTooManyRequests, reason: "too many requests from this address",
			retryAfter: time.Duration(seconds) * time.Second}
	}
	return nil
}

// checkReferer applies the rules about the page that shows the file. done is true if RefererFile is
// the response.
func (r *request) checkReferer(rules *Rules) (done bool, err error) {
	if rules.Referers == nil || !r.ctx.IsGet() && !r.ctx.IsHead() {
		return false, nil
	}
	h := &r.ctx.Request.Header
	referer := h.Referer()
	present := len(referer) > 0 || len(h.PeekAll(fasthttp.HeaderReferer)) > 0
	if rules.Referers.Allows(referer, present) {
		return false, nil
	}
	r.h.o.Metrics.rejectedAccess.WithLabelValues(deniedByReferer).Inc()
	if rules.RefererFile != nil {
		r.sendPage(rules.RefererFile.Type, rules.RefererFile.Body)
		return true, nil
	}
	return false, errReferer
}

// limitRate sets the rate of the body of a file. It is lifted when the server stops, so that
// responses end in time.
func (r *request) limitRate() {
	rules := r.h.o.Rules
	if rules == nil || rules.SendRate == 0 {
		return
	}
	r.body.Limit = sendfile.Limit{Rate: rules.SendRate, After: rules.SendAfter}
	if c := connOf(r.ctx.Conn()); c != nil {
		r.body.Limit.Lifted = c.s.stopping
	}
}

// Limiter returns the limiter of Rules.Requests; nil if there is none.
func (h *Handler) Limiter() *access.Limiter {
	if h.o.Rules == nil {
		return nil
	}
	return h.o.Rules.Requests
}
