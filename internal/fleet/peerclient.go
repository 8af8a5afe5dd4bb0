package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"fastdfs-gateway/internal/backoff"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/logfile"
	"fastdfs-gateway/internal/panics"
)

const (
	peerDial = time.Second // for a connection to a peer, and again for its TLS handshake
	maxPeers = 1024        // in back-off at a time
)

// peerBackoff is for how long a peer that could not be reached is not asked. Then one request
// probes it, and the others ask other gateways until that has reached it.
var peerBackoff = backoff.Policy{First: 2 * time.Second, Max: 30 * time.Second}

// peers reads entries from other gateways.
type peers struct {
	o       *Options
	leases  *leases
	client  *http.Client // nil = this gateway has no peers
	warn    *logfile.Warner
	backoff *backoff.Set[string] // peers that could not be reached
}

// newPeers makes the client; config is nil where there are no peers.
func newPeers(o *Options, b *leases, config *tls.Config) *peers {
	p := &peers{o: o, leases: b, warn: logfile.NewWarner(o.Log), backoff: backoff.NewSet[string](peerBackoff, maxPeers)}
	if config == nil {
		return p
	}
	p.client = &http.Client{
		Transport: &http.Transport{
			DialContext:            dialPeer(peerDial),
			TLSClientConfig:        config,
			TLSHandshakeTimeout:    peerDial,
			Protocols:              onlyHTTP2(),
			HTTP2:                  http2Config(o.LockTTL),
			MaxResponseHeaderBytes: 16 << 10,
			IdleConnTimeout:        time.Minute,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p
}

// dialPeer makes connections to peers.
func dialPeer(timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: timeout}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newBufferedConn(conn), nil
	}
}

func (p *peers) close() {
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
}

// Errors of reading from a peer, besides cache.ErrNotHere and cache.ErrChanged.
var (
	errUnreachable = fmt.Errorf("%w: peer cannot be reached", cache.ErrNotHere)
	errRefused     = errors.New("peer refuses")
	errAnswer      = errors.New("peer gives a wrong answer")
)

// Open implements cache.Fleet. A peer that cannot be reached is cache.ErrNotHere too.
func (f *Fleet) Open(ctx context.Context, peer string, r cache.PeerRequest) (cache.Meta, io.ReadCloser, error) {
	m, body, err := f.peers.open(ctx, peer, &entryRequest{PeerRequest: r, Purge: max(0, f.seenUpTo())})
	if err != nil {
		f.leases.fetched(resultOf(err))
		return m, nil, fmt.Errorf("cannot read %q from %q: %w", r.Key, peer, err)
	}
	if body == nil {
		f.leases.fetched("ok")
		return m, nil, nil // no body that is a nil pointer
	}
	return m, body, nil
}

// open sends a request and waits for the head of the answer.
func (p *peers) open(ctx context.Context, peer string, r *entryRequest) (m cache.Meta, body *peerBody, err error) {
	defer panics.ToError(&err, "asking a peer")
	if _, err := parsePeer(peer); err != nil {
		return m, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, peer+r.uri(), nil)
	switch {
	case err != nil:
		return m, nil, fmt.Errorf("cannot make a request: %w", err)
	case p.client == nil || peer == p.o.Advertise:
		return m, nil, fmt.Errorf("%w: it is this gateway, or no secret is set", errUnreachable)
	case !p.backoff.Allow(peer):
		return m, nil, fmt.Errorf("%w: it has failed a moment ago", errUnreachable)
	}
	defer p.backoff.Abandon(peer) // where the answer is none of those below
	answer, err := p.client.Do(req)
	if isCut(err) { // a new connection tells whether the peer is dead; net/http does so for HTTP/1 alone
		answer, err = p.client.Do(req)
	}
	if err != nil {
		return m, nil, p.failed(ctx, peer, err)
	}
	p.backoff.Succeed(peer)
	m, err = p.accept(peer, r, answer)
	if err != nil || r.Key.Index == cache.Facts {
		_ = answer.Body.Close() // it is not used
		return m, nil, err
	}
	left := m.Version.SegmentLength(r.Key.Index) - r.Offset
	return m, &peerBody{p: p, ctx: ctx, body: answer.Body, left: left}, nil
}

// isCut tells whether a connection ended while a request on it was waiting for its answer.
func isCut(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// failed is the error for a peer that did not answer; the others need not wait for it meanwhile.
func (p *peers) failed(ctx context.Context, peer string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", errUnreachable, context.Cause(ctx))
	case errors.Is(err, ErrSecret):
		p.backoff.Fail(peer)
		p.warn.Warn(peer, "a peer is not trusted", "gateway", peer, "error", ErrSecret,
			"advice",
			"give all gateways the same secret in [peer], and see that advertise leads to their [peer] listen")
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	p.backoff.Fail(peer)
	p.warn.Warn(peer, "a peer cannot be reached", "gateway", peer, "error", err,
		"advice", "see that it runs, and that advertise in its [peer] leads to its [peer] listen from this host")
	return fmt.Errorf("%w: %w", errUnreachable, err)
}

// accept reads the head of an answer.
func (p *peers) accept(peer string, r *entryRequest, answer *http.Response) (m cache.Meta, err error) {
	now := time.Now()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		m = cache.Meta{Gone: true, Checked: now, TTL: -1}
		if ttl, ok := parseMillis(answer.Header.Get(lifetimeHeader)); ok && ttl > 0 {
			m.TTL = ttl
		}
		return m, cache.ErrNotFound
	case http.StatusMisdirectedRequest:
		return m, cache.ErrNotHere
	case http.StatusConflict:
		return m, fmt.Errorf("%w: the peer knows another version", cache.ErrChanged)
	default:
		p.warn.Warn(peer, "a peer does not send an entry", "gateway", peer, "error", answer.Status)
		return m, fmt.Errorf("%w with status %d", errRefused, answer.StatusCode)
	}
	v, err := parseVersion(answer.Header.Get(versionHeader))
	length := v.SegmentLength(r.Key.Index) - r.Offset
	switch {
	case err != nil:
		return m, fmt.Errorf("%w: version: %w", errAnswer, err)
	case r.Want != nil && v != *r.Want:
		return m, fmt.Errorf("%w: the peer has another version", cache.ErrChanged)
	case r.Key.Index != cache.Facts && answer.ContentLength != length:
		return m, fmt.Errorf("%w: %d bytes of %q from byte %d on", errAnswer, answer.ContentLength, r.Key, r.Offset)
	}
	m.Version = v
	if age, ok := parseMillis(answer.Header.Get(ageHeader)); ok {
		m.Checked = now.Add(-age)
	}
	return m, nil
}

// resultOf names how a read has gone, for the counters.
func resultOf(err error) string {
	for _, r := range []struct {
		err  error
		name string
	}{
		{errUnreachable, "unreachable"}, {cache.ErrNotHere, "not_here"}, {cache.ErrNotFound, "not_found"},
		{cache.ErrChanged, "changed"}, {errRefused, "refused"},
	} {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	return "broken"
}

// peerBody is the body of a peer's answer. Its reads end with ctx, and when the connection fails.
type peerBody struct {
	p       *peers
	ctx     context.Context // of the request that the body answers
	body    io.ReadCloser
	left    int64 // bytes that are missing
	counted bool
}

// Read implements io.Reader. It is io.EOF only when the segment is complete.
func (b *peerBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.left -= int64(n)
	switch {
	case b.left == 0:
		b.count("ok")
	case errors.Is(err, io.EOF): // net/http compares with Content-Length before
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		b.count("broken")
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
		err = fmt.Errorf("cannot read on from a peer, %d bytes are missing: %w", b.left, err)
	}
	return n, err
}

// count counts how the read has gone, once.
func (b *peerBody) count(result string) {
	if !b.counted {
		b.counted = true
		b.p.leases.fetched(result)
	}
}

// Close implements io.Closer. An answer that was not read to its end is cancelled; the connection
// stays.
func (b *peerBody) Close() error {
	b.count("abandoned")
	return b.body.Close()
}
