package gateway

import (
	"bytes"
	"cmp"
	"context"
	"net"
	"net/netip"
	"strconv"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httpserver/httprange"
	"fastdfs-gateway/internal/origin"

	"github.com/valyala/fasthttp"
)

// Origin finds files of other hosts: an *origin.Resolver.
type Origin interface {
	// Find fills in r.File, or returns the host to which the client is redirected. localErr is the
	// error of the store of this host.
	Find(r *origin.Request, localErr error) (redirect string, err error)
	// Explain reports each step of Find.
	Explain(ctx context.Context, r *origin.Request, localErr error,
		step func(name, format string, args ...any)) origin.Outcome
	// Kept returns the size of a variant in the cache, in bytes; 0: none can be made of the file.
	// ok is false if the cache does not have it.
	Kept(id fdfs.FileID, variant string) (size int64, ok bool)
	// Prefetch fetches a whole file into the cache.
	Prefetch(ctx context.Context, id fdfs.FileID, localErr error, now time.Time) (size int64, where string, err error)
}

var _ Origin = (*origin.Resolver)(nil)

// findRemote searches other hosts for the file. responded is true if the client was redirected.
func (r *request) findRemote(localErr error) (responded bool, err error) {
	q, p := &r.remote, &r.target.params
	q.ID, q.Now, q.Redirected, q.Port = r.id, r.now, p.redirected(), r.sourcePort()
	q.Token, q.Timestamp, q.Variant = p.token, p.ts, r.target.variantName()
	if r.trace != nil {
		return r.traceRemote(localErr)
	}
	host, err := r.h.o.Origin.Find(q, localErr)
	if err != nil {
		return false, err
	}
	if host != "" {
		r.redirect(host)
		return true, nil
	}
	f := &q.File
	r.source, r.stale = sourceMemory, f.Stale()
	if f.Revalidated() {
		r.source = sourceOrigin
	}
	r.info = r.h.remoteInfo(f, r.id, r.target.picked)
	return false, nil
}

var headerLocation = []byte(fasthttp.HeaderLocation)

// redirect responds with the address of the file at another host.
func (r *request) redirect(host string) {
	r.source = sourceRedirect
	r.ctx.SetStatusCode(fasthttp.StatusFound)
	r.ctx.Response.Header.SetCanonical(headerLocation, r.location(host))
	r.setCORS()
}

// location returns the URL of the file at the web server of another host.
func (r *request) location(host string) []byte {
	o := &r.h.o
	scheme := cmp.Or(o.RedirectScheme, r.scheme())
	port := cmp.Or(o.RedirectPort, portOf(r.ctx.LocalAddr()))
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
		host = "[" + host + "]"
	}
	b := append([]byte(scheme+"://"), host...)
	if port != 0 && !(scheme == "http" && port == 80) && !(scheme == "https" && port == 443) {
		b = strconv.AppendInt(append(b, ':'), int64(port), 10)
	}
	targets := origin.Targets{Prefix: o.URLPrefix, Group: o.GroupInURL}
	return targets.AppendRedirect(b, r.id.AsAsked(), r.redirectQuery())
}

// sourcePort returns the port of the web servers of other hosts, which speak plain HTTP: PlainPort
// for a request by TLS if it is set, else the local port of the request.
func (r *request) sourcePort() int {
	if r.h.o.PlainPort != 0 && r.x.ByTLS() {
		return r.h.o.PlainPort
	}
	return portOf(r.ctx.LocalAddr())
}

// portOf returns the port of a TCP address; 0 for a unix socket.
func portOf(a net.Addr) int {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}

// openRemote waits for the first bytes of the body from other hosts. A failure until then still
// gets a status.
func (r *request) openRemote() error {
	f := &r.remote.File
	r.body.File = f
	opened := false
	for i := range r.body.Pieces {
		p, from, err := &r.body.Pieces[i], cache.FromNowhere, error(nil)
		switch {
		case p.Length == 0:
			continue
		case opened:
			err = f.Confirm(p.Offset, p.Length)
		default:
			opened = true
			if from, err = f.Open(p.Offset, p.Length); err == nil {
				r.source = from.String() // one of the source constants
				r.setXCache()
			}
		}
		if err != nil {
			r.closeFile()
			return err
		}
	}
	return nil
}

var _ origin.Client = (*request)(nil)

// Wait implements origin.Client.
func (r *request) Wait(source string, onDisconnect func()) (done func(), err error) {
	done, ok := r.x.Wait(source, onDisconnect)
	if !ok {
		return nil, origin.ErrTooManyWaiting
	}
	return done, nil
}

// Hint implements origin.Client: it returns the offset of the first byte of the file that the
// response needs, or NoHint if the response may need none or the request does not show it.
func (r *request) Hint() int64 {
	h := &r.ctx.Request.Header
	if r.ctx.IsHead() || len(h.Peek(fasthttp.HeaderIfNoneMatch)) > 0 ||
		len(h.Peek(fasthttp.HeaderIfModifiedSince)) > 0 {
		return cache.NoHint
	}
	if start, ok := httprange.ParseNumber(r.target.params.start); ok && r.h.o.FLVExtension != "" &&
		r.id.Ext() == r.h.o.FLVExtension {
		return start
	}
	ranges, ok := bytes.CutPrefix(h.Peek(fasthttp.HeaderRange), []byte("bytes="))
	if !ok {
		return 0
	}
	first, _, _ := bytes.Cut(ranges, []byte{'-'})
	if n, err := strconv.ParseInt(string(bytes.TrimSpace(first)), 10, 64); err == nil && n >= 0 {
		return n
	}
	return cache.NoHint // a suffix range, or a malformed one
}
