package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/panics"
)

const (
	peerDial    = time.Second     // for a connection to a peer, and again for its TLS handshake
	peerBackoff = 2 * time.Second // in which a peer that could not be reached is not asked
	maxPeers    = 1024            // in back-off at a time
)

// peers reads segments from other gateways.
type peers struct {
	o      *Options
	leases *book
	client *http.Client // nil = this gateway has no peers
	warn   *limitedWarning

	mu      sync.Mutex           // guards backoff
	backoff map[string]time.Time // peers that could not be reached, and when they are asked again
}

// newPeers makes the client; config is nil where there are no peers.
func newPeers(o *Options, b *book, config *tls.Config) *peers {
	p := &peers{o: o, leases: b, warn: newLimitedWarning(o.Log), backoff: make(map[string]time.Time)}
	if config == nil {
		return p
	}
	p.client = &http.Client{
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: peerDial}).DialContext,
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

func (p *peers) close() {
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
}

// Errors of reading from a peer, besides cache.ErrNotHere and cache.ErrChanged.
var (
	errUnreachable = errors.New("peer cannot be reached")
	errRefused     = errors.New("peer refuses")
	errAnswer      = errors.New("peer gives a wrong answer")
)

// OpenPeer implements cache.Fleet. When the holder answers that it does not have the segment, its location is dropped.
func (f *Fleet) OpenPeer(ctx context.Context, holder string, key cache.SegmentKey, want *cache.Version, offset int64) (cache.Version, io.ReadCloser, error) {
	v, body, err := f.peers.open(ctx, holder, &segmentRequest{Key: key, Want: want, Offset: offset})
	if err != nil {
		f.book.fetched(resultOf(err))
	}
	if errors.Is(err, cache.ErrNotHere) {
		err = errors.Join(err, f.dropLocation(ctx, key.String(), holder))
	}
	if err != nil {
		return cache.Version{}, nil, fmt.Errorf("cannot read %q from %q: %w", key, holder, err)
	}
	return v, body, nil
}

// open sends a request and waits for the head of the answer, which tells the version.
func (p *peers) open(ctx context.Context, holder string, r *segmentRequest) (v cache.Version, body *peerBody, err error) {
	defer panics.ToError(&err, "asking a peer")
	if _, err := parsePeer(holder); err != nil {
		return cache.Version{}, nil, err
	}
	switch {
	case p.client == nil || holder == p.o.Advertise:
		return cache.Version{}, nil, fmt.Errorf("%w: it is this gateway, or no secret is set", errUnreachable)
	case p.inBackoff(holder):
		return cache.Version{}, nil, fmt.Errorf("%w: it failed less than %s ago", errUnreachable, peerBackoff)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, holder+r.uri(), nil)
	if err != nil {
		return cache.Version{}, nil, fmt.Errorf("cannot make a request: %w", err)
	}
	answer, err := p.client.Do(req)
	if err != nil {
		return cache.Version{}, nil, p.failed(ctx, holder, err)
	}
	v, err = p.accept(holder, r, answer)
	if err != nil {
		_ = answer.Body.Close() // nothing of it is used
		return cache.Version{}, nil, err
	}
	return v, &peerBody{p: p, ctx: ctx, body: answer.Body, left: v.SegmentLength(r.Key.Index) - r.Offset}, nil
}

// failed is the error for a peer that did not answer; the others need not wait for it meanwhile.
func (p *peers) failed(ctx context.Context, holder string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", errUnreachable, context.Cause(ctx))
	case errors.Is(err, errSecret):
		p.backOff(holder)
		p.warn.log(holder, "a peer is not trusted", "gateway", holder, "error", errSecret,
			"advice", "give all gateways the same secret in [peer], and see that advertise leads to [peer] listen of that gateway")
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	p.backOff(holder)
	p.warn.log(holder, "a peer cannot be reached", "gateway", holder, "error", err,
		"advice", "see that it runs, and that advertise in its [peer] leads to its [peer] listen from this host")
	return fmt.Errorf("%w: %w", errUnreachable, err)
}

// accept reads the head of an answer.
func (p *peers) accept(holder string, r *segmentRequest, answer *http.Response) (v cache.Version, err error) {
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return v, cache.ErrNotHere
	case http.StatusConflict:
		return v, fmt.Errorf("%w: the peer has another version", cache.ErrChanged)
	default:
		p.warn.log(holder, "a peer does not send a segment", "gateway", holder, "error", answer.Status)
		return v, fmt.Errorf("%w with status %d", errRefused, answer.StatusCode)
	}
	v, err = parseVersion(answer.Header.Get(versionHeader))
	switch {
	case err != nil:
		return v, fmt.Errorf("%w: version: %w", errAnswer, err)
	case r.Want != nil && v != *r.Want:
		return v, fmt.Errorf("%w: the peer has another version", cache.ErrChanged)
	case answer.ContentLength != v.SegmentLength(r.Key.Index)-r.Offset:
		return v, fmt.Errorf("%w: %d bytes from byte %d of segment %d", errAnswer, answer.ContentLength, r.Offset, r.Key.Index)
	}
	return v, nil
}

// inBackoff tells whether a peer could not be reached a moment ago.
func (p *peers) inBackoff(holder string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.backoff[holder]
	if ok && time.Now().After(until) {
		delete(p.backoff, holder)
		ok = false
	}
	return ok
}

func (p *peers) backOff(holder string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.backoff) >= maxPeers {
		clear(p.backoff)
	}
	p.backoff[holder] = time.Now().Add(peerBackoff)
}

// resultOf names how a read has gone, for the counters.
func resultOf(err error) string {
	for _, r := range []struct {
		err  error
		name string
	}{{cache.ErrNotHere, "not_here"}, {cache.ErrChanged, "changed"}, {errUnreachable, "unreachable"}, {errRefused, "refused"}} {
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

// Close implements io.Closer. An answer that was not read to its end is cancelled; the connection stays.
func (b *peerBody) Close() error {
	b.count("abandoned")
	return b.body.Close()
}

// warnEvery is the time in which one line is logged about the same peer.
const warnEvery = time.Minute

// limitedWarning logs at most one warning a minute for each subject.
type limitedWarning struct {
	to *slog.Logger

	mu   sync.Mutex // guards last
	last map[string]time.Time
}

func newLimitedWarning(to *slog.Logger) *limitedWarning {
	return &limitedWarning{to: to, last: make(map[string]time.Time)}
}

func (w *limitedWarning) log(subject, message string, about ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.last[subject]; ok && time.Since(at) < warnEvery {
		return
	}
	if len(w.last) >= maxPeers {
		clear(w.last)
	}
	w.last[subject] = time.Now()
	w.to.Warn(message, about...)
}
