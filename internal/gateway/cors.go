package gateway

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// CORS permits pages of other origins to read responses (Fetch standard, section 3.3).
type CORS struct {
	// Origins are "*", or the permitted origins, of which a response names the one of its request.
	// A request without Origin gets the origin of a list of one: a browser may later give the
	// cached response, of a picture for example, to a script.
	Origins     []string
	Expose      string        // Access-Control-Expose-Headers; empty = none
	Headers     string        // Access-Control-Allow-Headers; empty = none
	MaxAge      time.Duration // Access-Control-Max-Age; 0 = 24 h, negative = 0
	Credentials bool          // Access-Control-Allow-Credentials, for a list of origins
}

// cors holds the header values of a CORS.
type cors struct {
	origins [][]byte
	always  []byte // Access-Control-Allow-Origin of a request without Origin; nil = none
	any     bool   // every origin is permitted
	expose  []byte
	headers []byte
	maxAge  []byte

	credentials bool
}

// newCORS returns nil for a CORS without origins.
func newCORS(o CORS) *cors {
	if len(o.Origins) == 0 {
		return nil
	}
	age := max(cmp.Or(o.MaxAge, 24*time.Hour), 0)
	c := &cors{any: slices.Contains(o.Origins, "*"), expose: []byte(o.Expose), headers: []byte(o.Headers),
		maxAge: strconv.AppendInt(nil, int64(age/time.Second), 10)}
	for _, origin := range o.Origins {
		c.origins = append(c.origins, []byte(origin))
	}
	c.credentials = o.Credentials && !c.any
	if c.any {
		c.always = []byte("*")
	} else if len(c.origins) == 1 {
		c.always = c.origins[0]
	}
	return c
}

// permitted returns the value of Access-Control-Allow-Origin for a value of Origin; nil = none.
func (c *cors) permitted(origin []byte) []byte {
	if c.any || len(origin) == 0 {
		return c.always
	}
	for _, known := range c.origins {
		if string(known) == string(origin) {
			return known
		}
	}
	return nil
}

var (
	headerOrigin      = []byte(fasthttp.HeaderOrigin)
	headerVary        = []byte(fasthttp.HeaderVary)
	headerAllowOrigin = []byte(fasthttp.HeaderAccessControlAllowOrigin)
	headerExpose      = []byte(fasthttp.HeaderAccessControlExposeHeaders)
	headerCredentials = []byte(fasthttp.HeaderAccessControlAllowCredentials)
	valueTrue         = []byte("true")
)

// setCORS sets the headers that CORS requires in responses to preflight and other requests. Vary
// keeps caches from giving the response for one origin to another.
func (r *request) setCORS() {
	c := r.h.cors
	if c == nil {
		return
	}
	h := &r.ctx.Response.Header
	if !c.any {
		h.SetCanonical(headerVary, headerOrigin)
	}
	origin := c.permitted(r.ctx.Request.Header.PeekCanonical(headerOrigin))
	if origin == nil {
		return
	}
	h.SetCanonical(headerAllowOrigin, origin)
	if len(c.expose) > 0 {
		h.SetCanonical(headerExpose, c.expose)
	}
	if c.credentials {
		h.SetCanonical(headerCredentials, valueTrue)
	}
}

// preflight responds to a CORS preflight request.
func (r *request) preflight() {
	r.setCORS()
	c, h := r.h.cors, &r.ctx.Response.Header
	h.Set(fasthttp.HeaderAllow, r.h.allow)
	if len(h.PeekCanonical(headerAllowOrigin)) > 0 {
		h.Set(fasthttp.HeaderAccessControlAllowMethods, r.h.allow)
		if len(c.headers) > 0 {
			h.SetBytesV(fasthttp.HeaderAccessControlAllowHeaders, c.headers)
		}
		h.SetBytesV(fasthttp.HeaderAccessControlMaxAge, c.maxAge)
	}
	r.ctx.SetStatusCode(fasthttp.StatusNoContent)
}
