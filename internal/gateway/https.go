package gateway

import (
	"bytes"
	"strconv"

	"github.com/valyala/fasthttp"
)

// redirectToHTTPS sends the client to the same URL by https.
func (r *request) redirectToHTTPS() error {
	location, ok := appendHTTPS(nil, r.hostField(), r.h.o.HTTPSPort, r.ctx.Request.Header.RequestURI())
	if !ok {
		return errBadHost
	}
	status := fasthttp.StatusPermanentRedirect // keeps the method
	if r.ctx.IsGet() || r.ctx.IsHead() {
		status = fasthttp.StatusMovedPermanently
	}
	r.ctx.SetStatusCode(status)
	r.ctx.Response.Header.SetCanonical(headerLocation, location)
	r.setCORS()
	return nil
}

// appendHTTPS appends the https URL of a request for a target at a host, whose port is replaced. ok
// is false without a host, and for a target that is no path.
func appendHTTPS(b, host []byte, port int, target []byte) (url []byte, ok bool) {
	if len(host) == 0 || len(target) == 0 || target[0] != '/' {
		return nil, false
	}
	b = append(append(b, "https://"...), withoutPort(host)...)
	if port != 443 {
		b = strconv.AppendInt(append(b, ':'), int64(port), 10)
	}
	fragment := bytes.IndexByte(target, '#')
	if fragment < 0 {
		fragment = len(target)
	}
	return append(b, target[:fragment]...), true
}

// scheme returns "https" for a request that came by TLS, and "http" for any other. The scheme that
// a trusted proxy names has priority.
func (r *request) scheme() string {
	switch {
	case bytes.EqualFold(r.proto, []byte("https")):
		return "https"
	case bytes.EqualFold(r.proto, []byte("http")):
		return "http"
	case r.x.ByTLS():
		return "https"
	}
	return "http"
}
