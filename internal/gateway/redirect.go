package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage"

	"github.com/valyala/fasthttp"
)

// redirect sends the client to the web server of a storage that has the file. With replicas to
// choose from the storages are asked for it first; when none can be asked, the client is sent to
// the one that is most likely to have it.
func (a *away) redirect(r *request, id fdfs.FileID, cause error, p plan) error {
	to := p.servers[0]
	if len(p.servers) > 1 || a.o.TryReplicas {
		w := r.wanted(a, id)
		holder, err := a.locate(w, p.servers)
		if fresh, ok := a.moved(id, cause, r.marked(), r.now, p.servers, err); ok {
			holder, err = a.locate(w, fresh.servers)
		}
		if to = holder; err != nil {
			if refused := a.failure(id, err, r.now); refusalOf(refused).status == errNotFound.status {
				return refused
			}
		}
	}
	h := &r.ctx.Response.Header
	r.source = sourceRedirect
	r.ctx.SetStatusCode(fasthttp.StatusFound)
	h.SetCanonical(headerLocation, a.location(r, to))
	r.setCORS()
	return nil
}

const (
	// redirectProbe is how long the first two storages are waited for.
	redirectProbe = 200 * time.Millisecond
	// redirectPatience is how long the others are waited for. Not longer: clients may reach hosts
	// whose storage ports this host cannot.
	redirectPatience = 800 * time.Millisecond
)

// locate finds a server that has the file. Those that have failed lately are asked last; the first
// two of the others are asked at the same time, so that one that has just died costs no more than
// redirectProbe. The error is storage.ErrNotFound when no server has the file, and
// storage.ErrNoSource when it cannot be told; to is then the first server that may have it.
func (a *away) locate(w Wanted, servers []storage.Server) (to storage.Server, err error) {
	servers = a.slow.last(a.o.Origin.Order(servers))
	first := servers[:min(2, len(servers))]
	errs := a.probe(w, first)
	for i, err := range errs {
		if err == nil {
			return first[i], nil
		}
	}
	if rest := servers[len(first):]; len(rest) > 0 {
		info, err := a.stat(context.Background(), w, rest, min(redirectPatience, a.o.StatTimeout))
		if err == nil {
			return info.From, nil
		}
		for range rest {
			errs = append(errs, err)
		}
	}
	for i, err := range errs {
		if !errors.Is(err, storage.ErrNotFound) {
			return servers[i], fmt.Errorf("cannot find a storage with the file: %w: %w", storage.ErrNoSource, errors.Join(errs...))
		}
	}
	return servers[0], storage.ErrNotFound
}

// errUnheard is the failure of a server whose answer was not waited for, as a better one had the file.
var errUnheard = errors.New("not waited for")

// probe asks the servers at the same time. It returns as soon as the best one of those that have
// the file is known, with the error of each server.
func (a *away) probe(w Wanted, servers []storage.Server) []error {
	ctx, cancel := context.WithTimeout(context.Background(), min(redirectProbe, a.o.StatTimeout))
	defer cancel() // ends the goroutines that are still waiting for an answer
	type reply struct {
		at  int
		err error
	}
	replies := make(chan reply, len(servers))
	for i := range servers {
		go func() {
			_, err := a.stat(ctx, w, servers[i:i+1], redirectProbe)
			a.slow.note(servers[i], err)
			replies <- reply{i, err}
		}()
	}
	errs, heard := make([]error, len(servers)), make([]bool, len(servers))
	for i := range errs {
		errs[i] = errUnheard
	}
	for best := 0; best < len(servers); {
		r := <-replies
		errs[r.at], heard[r.at] = r.err, true
		for best < len(servers) && heard[best] {
			if errs[best] == nil {
				return errs
			}
			best++
		}
	}
	return errs
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

// appendMarked appends the query as it came, with redirect=1 as its only parameter of that name:
// the mark by which the next server knows not to send the request on. Bytes that no URL may have
// are escaped.
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
