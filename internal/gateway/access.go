package gateway

import (
	"bytes"
	"math"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/httpserver/access"
	"fastdfs-gateway/internal/httpserver/clientaddr"
	"fastdfs-gateway/internal/httpserver/fileselect"

	"github.com/valyala/fasthttp"
)

// Rules decide which requests are served, in this order. The token comes after them.
type Rules struct {
	Deny        *clientaddr.Networks // of clients: 403; nil = none
	Allow       *clientaddr.Networks // all other clients get 403; nil = all are allowed
	Unlimited   *clientaddr.Networks // clients without limits by address; nil = none
	Requests    *access.Limiter      // rate per address: 429 above it; nil = no limit
	Referers    *access.Referers     // allowed for GET and HEAD: 403 for others; nil = all
	RefererFile *Page                // sent with 200 in place of a 403 for the referer; nil = none
	RefererURL  string               // target of a 302 in place of a 403 for the referer; empty = none
	SendRate    int64                // bytes per second of one response, or of all on HTTP/2; 0 = no limit
	SendAfter   int64                // bytes of one response that SendRate does not apply to
}

// RuleSection replaces rules for selected files.
type RuleSection struct {
	Files   fileselect.Selector
	Rules   Rules
	Replace []func(to, from *Rules) // each copies one replaced rule from Rules
}

// String names the properties of a request that the rules depend on; empty = all requests are
// allowed.
func (r *Rules) String() string {
	var of []string
	if r == nil {
		return ""
	}
	if r.Allow != nil || r.Deny != nil {
		of = append(of, "address")
	}
	if r.Requests != nil {
		of = append(of, "request rate")
	}
	if r.Referers != nil {
		of = append(of, "Referer")
	}
	return strings.Join(of, ", ")
}

// newRules returns the rules of each file; nil if base applies to all files.
func newRules(base *Rules, sections []RuleSection) *fileselect.Choices[*Rules] {
	files := func(s RuleSection) fileselect.Selector { return s.Files }
	return fileselect.NewChoices(sections, files, func(matching []RuleSection) *Rules {
		rules := &Rules{}
		if base != nil {
			*rules = *base
		}
		for i := range matching {
			for _, replace := range matching[i].Replace {
				replace(rules, &matching[i].Rules)
			}
		}
		return rules
	})
}

// Reasons for which Rules reject a request: the values of the label reason.
const (
	deniedByAddress = "address"
	deniedByRate    = "rate"
	deniedByReferer = "referer"
)

// admit responds to HealthPath, or finds the client of the request and applies the rules to it.
// done is true if the response is set.
func (r *request) admit() (done bool, err error) {
	o := &r.h.o
	if o.HealthPath != "" && r.asksHealth() {
		r.trace.answer("the state of the gateway (health_path), 503 if it is not ready")
		r.health()
		return true, nil
	}
	if o.Proxies != nil {
		r.findClient()
	}
	return r.applyRules(r.findRules())
}

// applyRules applies rules to the client. done is true if the response is set.
func (r *request) applyRules(rules *Rules) (done bool, err error) {
	r.rules = rules
	if r.trace != nil {
		if r.rules != nil && r.rules.Deny.HasAll() {
			r.trace.step("access", "denied to all clients")
			return false, errAddress
		}
		if depends := r.rules.String(); depends != "" {
			r.trace.step("access", "decided by the client's %s", depends)
		}
		return false, nil
	}
	if r.rules == nil {
		return false, nil
	}
	if err := r.checkClient(); err != nil {
		return false, err
	}
	return r.checkReferer()
}

// findRules returns the rules of the file that the request names. A request without a file id has
// Options.Rules.
func (r *request) findRules() *Rules {
	if r.h.rules == nil && r.trace == nil || r.findID() != nil {
		return r.h.o.Rules
	}
	return r.h.rulesOf(r.id)
}

// rulesOf returns the rules of a file; nil if there are none.
func (h *Handler) rulesOf(id fdfs.FileID) *Rules {
	if h.rules == nil {
		return h.o.Rules
	}
	return h.rules.Of(id.Group, id.PathIndex, id.Ext())
}

// asksHealth reports whether the request is for HealthPath.
func (r *request) asksHealth() bool {
	path, _, _ := bytes.Cut(r.ctx.Request.Header.RequestURI(), []byte{'?'})
	return string(path) == r.h.o.HealthPath && (r.ctx.IsGet() || r.ctx.IsHead())
}

// health responds like /readyz of the admin listener.
func (r *request) health() {
	r.quiet = true
	body := "ready\n"
	if r.h.o.Ready != nil {
		if err := r.h.o.Ready(); err != nil {
			r.ctx.SetStatusCode(fasthttp.StatusServiceUnavailable)
			body = "not ready\n" // without the error, which may name paths; the admin listener shows it
		}
	}
	h := &r.ctx.Response.Header
	h.SetContentType("text/plain; charset=utf-8")
	h.SetCanonical(headerCacheControl, []byte("no-store"))
	r.ctx.Response.SetBodyString(body)
}

// checkClient applies the rules about the client's address.
func (r *request) checkClient() error {
	rules, client := r.rules, r.clientAddr()
	if rules.Deny.Contains(client) || rules.Allow != nil && !rules.Allow.Contains(client) {
		r.h.o.Metrics.rejectedAccess.WithLabelValues(deniedByAddress).Inc()
		return errAddress
	}
	if rules.Requests == nil || !client.IsValid() || rules.Unlimited.Contains(client) {
		return nil
	}
	if wait := rules.Requests.Allow(clientaddr.Block(client), r.now); wait > 0 {
		r.h.o.Metrics.rejectedAccess.WithLabelValues(deniedByRate).Inc()
		seconds := min(math.Ceil(wait.Seconds()), float64(time.Hour/time.Second))
		return &rejection{status: fasthttp.StatusTooManyRequests, reason: "too many requests from this address",
			retryAfter: time.Duration(seconds) * time.Second}
	}
	return nil
}

// checkReferer applies the rules about the page that shows the file. done is true if RefererFile or
// RefererURL is the response.
func (r *request) checkReferer() (done bool, err error) {
	rules := r.rules
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
	switch {
	case rules.RefererFile != nil:
		r.sendPage(rules.RefererFile.Type, rules.RefererFile.Body)
		return true, nil
	case rules.RefererURL != "":
		r.ctx.SetStatusCode(fasthttp.StatusFound)
		h := &r.ctx.Response.Header
		h.SetCanonical(headerLocation, stringBytes(rules.RefererURL))
		h.SetCanonical(headerCacheControl, []byte("no-store"))
		r.setCORS()
		return true, nil
	}
	return false, errReferer
}

// limitRate sets the rate of the body of a file. The responses of an HTTP/2 connection share it,
// unless a trusted proxy sends the requests of several clients on it.
func (r *request) limitRate() {
	rules := r.rules
	if rules == nil || rules.SendRate == 0 {
		return
	}
	r.body.Limit = r.x.Limit(rules.SendRate, rules.SendAfter, !r.h.isProxy(r.x.Client()))
}

// Limiters returns the request limiters of Rules and of each of RuleSections, in their order; nil
// for rules without one.
func (h *Handler) Limiters() []*access.Limiter {
	limiters := []*access.Limiter{nil}
	if h.o.Rules != nil {
		limiters[0] = h.o.Rules.Requests
	}
	for i := range h.o.RuleSections {
		limiters = append(limiters, h.o.RuleSections[i].Rules.Requests)
	}
	return limiters
}

// Limits implements httpserver.Handler.
func (h *Handler) Limits() httpserver.Limits {
	l := httpserver.Limits{Proxies: h.o.Proxies}
	if h.o.Rules != nil {
		l.Unlimited = h.o.Rules.Unlimited
	}
	return l
}
