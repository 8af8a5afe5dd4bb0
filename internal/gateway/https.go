package gateway

import (
	"bytes"
	"net"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httpserver/guard"

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
// is false if host or target is invalid.
func appendHTTPS(b, host []byte, port int, target []byte) (url []byte, ok bool) {
	name, ok := hostName(string(host))
	if !ok || len(target) == 0 || target[0] != '/' {
		return nil, false
	}
	b = append(append(b, "https://"...), name...)
	if port != 443 {
		b = strconv.AppendInt(append(b, ':'), int64(port), 10)
	}
	fragment := bytes.IndexByte(target, '#')
	if fragment < 0 {
		fragment = len(target)
	}
	return append(b, target[:fragment]...), true
}

// hostName returns the host of a Host field without its port, as it stands in a URL: an IPv6
// address keeps its brackets.
func hostName(host string) (name string, ok bool) {
	if literal, isLiteral := strings.CutPrefix(host, "["); isLiteral {
		address, port, closed := strings.Cut(literal, "]")
		isIPv6 := net.ParseIP(address) != nil && strings.Contains(address, ":")
		return "[" + address + "]", closed && isIPv6 && guard.ValidPort([]byte(port))
	}
	name, port := host, ""
	if colon := strings.IndexByte(host, ':'); colon >= 0 {
		name, port = host[:colon], host[colon:]
	}
	return name, fdfs.ValidHost(name) && guard.ValidPort([]byte(port))
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
