package gateway

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strconv"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage"

	"github.com/valyala/fasthttp"
)

// redirect sends the client to the source's web server. With replicas to choose from, the one that has the file is looked for
// first; when none of them can be asked the source is left to the client.
func (a *away) redirect(r *request, id fdfs.FileID, p plan) error {
	to := p.servers[0]
	if len(p.servers) > 1 || a.o.TryReplicas {
		info, err := a.stat(context.Background(), r.wanted(a, id), p.servers, min(redirectPatience, a.o.StatTimeout))
		switch refused := a.failureOf(id, err, r); {
		case err == nil:
			to = info.From
		case refused != nil:
			return refused
		}
	}
	h := &r.ctx.Response.Header
	r.source = sourceRedirect
	r.ctx.SetStatusCode(fasthttp.StatusFound)
	h.SetCanonical(headerLocation, a.location(r, to))
	r.setCORS()
	return nil
}

// redirectPatience is how long a client waits for its address: it may reach hosts whose storage ports this host cannot.
const redirectPatience = time.Second

// failureOf is the answer when it is certain that nobody has the file, else nil.
func (a *away) failureOf(id fdfs.FileID, err error, r *request) error {
	if err == nil {
		return nil
	}
	if f := a.failure(id, err, r.now); refusalOf(f).status == errNotFound.status {
		return f
	}
	return nil
}

var headerLocation = []byte(fasthttp.HeaderLocation)

// location is the address of the file at another host's web server.
func (a *away) location(r *request, to storage.Server) []byte {
	scheme := a.o.RedirectScheme
	if scheme == "" {
		if scheme = "http"; r.isTLS() {
			scheme = "https"
		}
	}
	port := a.o.RedirectPort
	if port == 0 {
		port = localPort(r.ctx.LocalAddr())
	}
	host := to.Host
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
		host = "[" + host + "]"
	}
	b := append([]byte(scheme+"://"), host...)
	if port != 0 && !(scheme == "http" && port == 80) && !(scheme == "https" && port == 443) {
		b = strconv.AppendInt(append(b, ':'), int64(port), 10)
	}
	return appendMarked(append(r.h.appendPath(b, r.id), '?'), r.target.query)
}

// isTLS tells whether the client came by https.
func (r *request) isTLS() bool { return r.h.o.TLS }

// localPort is the port that a connection came in on; 0 for a unix socket.
func localPort(a net.Addr) int {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}

// appendMarked appends the query as it came, with redirect=1 as its only parameter of that name: the mark by which the next server
// knows not to send the request on. Bytes that no URL may have are escaped.
func appendMarked(dst, query []byte) []byte {
	for more := len(query) > 0; more; {
		var pair []byte
		pair, query, more = bytes.Cut(query, []byte{'&'})
		name, _, _ := bytes.Cut(pair, []byte{'='})
		if decoded, _ := appendDecoded(nil, name, true); string(decoded) == "redirect" {
			continue
		}
		dst = append(appendEscaped(dst, pair), '&')
	}
	return append(dst, "redirect=1"...)
}

// appendEscaped appends text with everything escaped that may not stand in a URL (RFC 3986 section 2); escapes stay.
func appendEscaped(dst, text []byte) []byte {
	for _, c := range text {
		if c <= ' ' || c >= 0x7f || bytes.IndexByte([]byte("\"<>\\^`{|}#"), c) >= 0 {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
			continue
		}
		dst = append(dst, c)
	}
	return dst
}
