package gateway

import (
	"net/netip"

	"fastdfs-gateway/internal/httpserver/clientaddr"
	"fastdfs-gateway/internal/httpserver/guard"

	"github.com/valyala/fasthttp"
)

// This file finds the client of a request behind trusted proxies, by the fields that they add to
// the request. httpserver does so for whole connections. The access log and access.go use the
// address, redirects use scheme and host.

// The fields that a trusted proxy adds, besides fasthttp.HeaderXForwardedFor.
const (
	headerRealIP         = "X-Real-Ip" // as fasthttp writes it
	headerForwardedProto = fasthttp.HeaderXForwardedProto
	headerForwardedHost  = fasthttp.HeaderXForwardedHost
)

// protoHTTPS is the scheme of a client that is connected to its proxy by TLS.
var protoHTTPS = []byte("https")

// findClient sets client, proto and host as a trusted proxy names them. Fields from other addresses
// are ignored, and so are fields behind the header of the PROXY protocol: its proxy may pass on the
// fields as the client has sent them.
func (r *request) findClient() {
	r.client = r.x.Client()
	if found, byTLS := r.x.ByProxyHeader(); found {
		if byTLS {
			r.proto = protoHTTPS
		}
		return
	}
	if !r.h.isProxy(r.client) {
		return
	}
	p, h := r.h.o.Proxies, &r.ctx.Request.Header
	switch p.Method {
	case clientaddr.ByForwardedFor:
		r.client = clientaddr.ForwardedFor(p.Trusted, r.client, h.PeekAll(fasthttp.HeaderXForwardedFor))
	case clientaddr.ByRealIP:
		r.client = clientaddr.RealIP(r.client, h.PeekAll(headerRealIP))
	case clientaddr.ByForwarded:
		r.client, r.proto, r.host = clientaddr.Forwarded(p.Trusted, r.client, h.PeekAll(fasthttp.HeaderForwarded))
	}
	if r.proto == nil {
		r.proto = clientaddr.LastOf(h.PeekAll(headerForwardedProto))
	}
	if r.host == nil {
		r.host = clientaddr.LastOf(h.PeekAll(headerForwardedHost))
	}
}

// isProxy reports whether an address is that of a trusted proxy, whose connections have requests of
// several clients.
func (h *Handler) isProxy(peer netip.Addr) bool {
	p := h.o.Proxies
	return p != nil && p.Method != clientaddr.ByProxyProtocol && p.Trusts(peer)
}

// clientAddr returns the address of the client; invalid for a client of a unix socket.
func (r *request) clientAddr() netip.Addr {
	if r.client.IsValid() {
		return r.client
	}
	return r.x.Client()
}

// hostField returns the Host field as the client sent it: the one that a trusted proxy names, or
// the one of the request.
func (r *request) hostField() []byte {
	if guard.ValidHost(r.host) {
		return r.host
	}
	return r.ctx.Host()
}
