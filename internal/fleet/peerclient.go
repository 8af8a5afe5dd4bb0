package fleet

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs/backoff"
)

const maxPeers = 1024 // whose state is kept

// peerBackoff is the back-off time of a peer that could not be reached. After that, one request
// probes it, and all others go to other gateways until the probe has reached it.
var peerBackoff = backoff.Policy{First: 2 * time.Second, Max: 30 * time.Second}

// maxSilence returns the time without a sign of life after which the connections to a gateway are
// closed: a quarter of the TTL of its leases, so that the next gateway has time to take over when
// they expire, and at least the time that a gateway needs on a busy host. It bounds connecting and
// the TLS handshake too.
func maxSilence(lockTTL time.Duration) time.Duration { return max(2*time.Second, lockTTL/4) }

// defaultIdle is the default of cache.PeerRequest.Idle.
const defaultIdle = 30 * time.Second

// newTransport returns the transport to other gateways. It follows no redirect.
func newTransport(config *tls.Config, lockTTL time.Duration, lives lives) *http.Transport {
	return &http.Transport{
		DialContext:            lives.heardBy((&net.Dialer{Timeout: maxSilence(lockTTL)}).DialContext),
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    maxSilence(lockTTL),
		Protocols:              onlyHTTP2(),
		HTTP2:                  http2Config(lockTTL),
		MaxResponseHeaderBytes: 16 << 10,
		IdleConnTimeout:        time.Minute,
		DisableCompression:     true,
	}
}

// Errors of reading from a peer, besides those of cache.
var (
	errRejected = errors.New("peer rejects the request")
	errResponse = errors.New("peer sends an invalid response")
	errIdle     = errors.New("peer replies to probes, and sends nothing else")
)

// Open implements cache.Fleet.
func (f *Fleet) Open(ctx context.Context, peer string, r cache.PeerRequest) (cache.Meta, io.ReadCloser, error) {
	m, body, err := f.openEntry(ctx, peer, entryRequest{PeerRequest: r, Purge: f.seen.Load()})
	if body == nil { // otherwise the end of the body is counted
		_, result := outcomeOf(err)
		f.stats.change(func(n *Stats) { n.PeerFetches[result]++ })
	}
	if err != nil {
		err = fmt.Errorf("cannot read %q from %q: %w", r.Key, peer, err)
	}
	return m, body, err
}

// openEntry sends a request and waits for the head of the response.
func (f *Fleet) openEntry(ctx context.Context, peer string, r entryRequest) (
	m cache.Meta, body io.ReadCloser, err error) {
	to, err := parsePeer(peer)
	self := f.self.Load()
	switch {
	case err != nil:
		return m, nil, err
	case self.advertise == "" || peer == self.advertise:
		return m, nil, fmt.Errorf("%w: it is this gateway, or this one has no peers", cache.ErrUnreachable)
	}
	l := f.lives.ofPeer(peer)
	if !l.mayAsk() {
		return m, nil, fmt.Errorf("%w: it has failed a moment ago", cache.ErrUnreachable)
	}
	defer l.endProbe() // where neither noteFailure nor noteReply is called
	w := f.watch(ctx, to, l, cmp.Or(r.Idle, defaultIdle))
	defer func() {
		if body == nil {
			w.endRequest()
		}
	}()
	resp, err := f.transport.RoundTrip(r.make(w.ctx, to))
	if isCut(err) { // a new connection shows whether the peer runs; net/http retries so for HTTP/1 only
		resp, err = f.transport.RoundTrip(r.make(w.ctx, to))
	}
	if err != nil {
		return m, nil, f.failed(w, peer, err)
	}
	if err := f.self.Load().verify(resp.TLS); err != nil { // the secret has changed since the connection was made
		_ = resp.Body.Close() // it is not used
		f.transport.CloseIdleConnections()
		return m, nil, f.failed(w, peer, err)
	}
	l.noteReply()
	m, err = f.accept(peer, r, resp)
	if err != nil || r.Key.Index == cache.MetaOnly {
		_ = resp.Body.Close() // it is not used
		return m, nil, err
	}
	left := m.Version.SegmentLength(r.Key.Index) - r.Offset
	w.idle.Stop()
	return m, &peerBody{ReadCloser: resp.Body, watch: w, left: left, fleet: f}, nil
}

// isCut reports whether a connection ended while a request on it was waiting for its response.
func isCut(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// failed returns the error for a peer that did not respond, and starts its back-off, which saves
// other requests the wait.
func (f *Fleet) failed(w *watch, peer string, err error) error {
	cause := context.Cause(w.ctx)
	idle := errors.Is(cause, errIdle)
	if cause == nil || idle {
		w.life.noteFailure()
	}
	switch {
	case idle:
		f.warn.Warn(peer, "a peer does not respond", "gateway", peer, "error", cause,
			"advice", "see that the disk in disk_path of its [cache] works")
		return fmt.Errorf("%w: %w", cache.ErrUnreachable, cause)
	case cause != nil:
		return fmt.Errorf("%w: %w", cache.ErrUnreachable, cause)
	case errors.Is(err, ErrSecret):
		f.warn.Warn(peer, "a peer is not trusted", "gateway", peer, "error", ErrSecret,
			"advice",
			"give all gateways the same secret in [peer], and the same version, and see that advertise leads to their "+
				"[peer] listen")
		return fmt.Errorf("%w: %w", errRejected, err)
	}
	f.warn.Warn(peer, "a peer cannot be reached", "gateway", peer, "error", err,
		"advice", "see that it runs, and that advertise in its [peer] leads to its [peer] listen from this host")
	return fmt.Errorf("%w: %w", cache.ErrUnreachable, err)
}

// accept reads the head of a response.
func (f *Fleet) accept(peer string, r entryRequest, resp *http.Response) (m cache.Meta, err error) {
	now, err := time.Now(), errRejected
	for _, o := range outcomes {
		if o.status == resp.StatusCode {
			err = o.err
		}
	}
	if errors.Is(err, errRejected) {
		f.warn.Warn(peer, "a peer does not send an entry", "gateway", peer, "error", resp.Status)
		return m, fmt.Errorf("%w with status %d", errRejected, resp.StatusCode)
	}
	if err != nil && !errors.Is(err, cache.ErrNotFound) {
		return m, fmt.Errorf("the peer says: %w", err)
	}
	head, wrong := parseHead(resp.Header.Get(entryHeader))
	length := head.Version.SegmentLength(r.Key.Index) - r.Offset
	switch {
	case wrong != nil:
		return m, fmt.Errorf("%w: %s: %w", errResponse, entryHeader, wrong)
	case err != nil:
		return cache.Meta{Gone: true, Checked: now, TTL: cmp.Or(max(0, head.TTL), -1)}, err
	case r.Want != nil && head.Version != *r.Want:
		return m, fmt.Errorf("%w: the peer has another version", cache.ErrChanged)
	case r.Key.Index != cache.MetaOnly && resp.ContentLength != length:
		return m, fmt.Errorf("%w: %d bytes of %q from byte %d on", errResponse, resp.ContentLength, r.Key, r.Offset)
	case head.Age >= 0:
		m.Checked = now.Add(-head.Age)
	}
	m.Version = head.Version
	return m, nil
}

// peerBody is the body of a peer's response. net/http compares its length with Content-Length, so
// it ends with io.EOF only when the segment is complete, and it ends with the context of its
// request.
type peerBody struct {
	io.ReadCloser
	watch *watch
	left  int64  // missing bytes
	fleet *Fleet // nil = the read was counted
}

// Read implements io.Reader.
func (b *peerBody) Read(p []byte) (int, error) {
	b.watch.idle.Reset(b.watch.limit)
	n, err := b.ReadCloser.Read(p)
	b.watch.idle.Stop()
	b.left -= int64(n)
	switch {
	case b.left == 0:
		b.count("ok")
	case err != nil:
		// without the back-off, the next attempt would be idle again
		if b.fleet != nil && errors.Is(context.Cause(b.watch.ctx), errIdle) {
			b.watch.life.noteFailure()
		}
		b.count("broken")
		err = fmt.Errorf("cannot read on from a peer, %d bytes are missing: %w", b.left, err)
	}
	return n, err
}

// count counts the outcome of the read, once.
func (b *peerBody) count(result string) {
	if b.fleet != nil {
		b.fleet.stats.change(func(n *Stats) { n.PeerFetches[result]++ })
		b.fleet = nil
	}
}

// Close implements io.Closer. A response that was not read to its end is cancelled; the connection
// stays open.
func (b *peerBody) Close() error {
	b.count("abandoned")
	defer b.watch.endRequest()
	return b.ReadCloser.Close()
}
