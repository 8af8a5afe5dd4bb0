package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"fastdfs-gateway/internal/cache"
)

const (
	peerDial     = time.Second           // for a connection to another gateway
	peerRest     = 2 * time.Second       // how long one that did not answer is left alone
	maxPeers     = 1024                  // that are left alone at a time
	finishTime   = 50 * time.Millisecond // for the end of an answer when all bytes are there
	heartbeatsIn = 4                     // heartbeats in the time after which a gateway that says nothing is given up

	complainEvery = time.Minute // in which one line is logged about a gateway
)

// peers reads from other gateways.
type peers struct {
	o         *Options
	book      *book
	client    *http.Client
	stall     time.Duration // after which a gateway that says nothing is given up
	heartbeat time.Duration // how often this one says something
	finish    time.Duration // for the end of an answer when all bytes are there

	mu         sync.Mutex           // guards what follows
	alone      map[string]time.Time // gateways that did not answer, and until when they are left alone
	complained map[string]time.Time // gateways with which something is wrong, and when that was logged
}

// newPeers makes the client. A gateway that has stopped is noticed after a quarter of the ttl of its leases, so that the next one has
// time to take over when they expire.
func newPeers(o *Options, b *book) *peers {
	p := &peers{o: o, book: b, stall: max(time.Second, o.LockTTL/4), finish: finishTime, alone: make(map[string]time.Time), complained: make(map[string]time.Time)}
	p.heartbeat = p.stall / heartbeatsIn
	p.client = &http.Client{
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: peerDial}).DialContext,
			TLSHandshakeTimeout:    peerDial,
			ResponseHeaderTimeout:  p.stall,
			MaxResponseHeaderBytes: 16 << 10,
			MaxIdleConnsPerHost:    32,
			IdleConnTimeout:        30 * time.Second,
			DisableCompression:     true,
			ReadBufferSize:         64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p
}

func (p *peers) close() { p.client.CloseIdleConnections() }

// The errors of reading from another gateway, besides cache.ErrNotHere and cache.ErrChanged.
var (
	errUnreachable = errors.New("other gateway cannot be reached")
	errStalled     = errors.New("other gateway says nothing any more")
	errRefused     = errors.New("other gateway refuses")
)

// OpenPeer implements cache.Fleet. The segment of a holder that says that it has it not is no longer said to be there.
func (f *Fleet) OpenPeer(ctx context.Context, holder string, key cache.SegmentKey, want *cache.Version, offset int64) (cache.Version, io.ReadCloser, error) {
	v, body, err := f.peers.open(ctx, holder, &SegmentRequest{Key: key, Want: want, Offset: offset})
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

// open asks a gateway and waits for the version.
func (p *peers) open(ctx context.Context, holder string, r *SegmentRequest) (v cache.Version, body *peerBody, err error) {
	if _, err := parsePeer(holder); err != nil {
		return v, nil, err
	}
	switch {
	case p.o.Secret == "" || holder == p.o.Advertise:
		return v, nil, fmt.Errorf("%w: there is no way to it", errUnreachable)
	case p.rests(holder):
		return v, nil, fmt.Errorf("%w: it did not answer a moment ago", errUnreachable)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	body = &peerBody{p: p, holder: holder, cancel: cancel, cause: func() error { return context.Cause(ctx) }, left: -1}
	if v, err = body.begin(ctx, r); err != nil {
		_ = body.Close() // it has failed already
		return cache.Version{}, nil, err
	}
	return v, body, nil
}

// rests tells whether a gateway is left alone now.
func (p *peers) rests(holder string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.alone[holder]
	if ok && time.Now().After(until) {
		delete(p.alone, holder)
		ok = false
	}
	return ok
}

// leaveAlone spares others the waiting for a gateway that did not answer.
func (p *peers) leaveAlone(holder string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.alone) >= maxPeers {
		clear(p.alone)
	}
	p.alone[holder] = time.Now().Add(peerRest)
}

// complain says what is wrong with another gateway, once in a while.
func (p *peers) complain(holder, what string, about ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.complained[holder]) < complainEvery {
		return
	}
	if len(p.complained) >= maxPeers {
		clear(p.complained)
	}
	p.complained[holder] = time.Now()
	p.o.Log.Warn(what, append([]any{"gateway", holder}, about...)...)
}

// resultOf is how a read has gone, for the counters.
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

// peerBody is what another gateway sends of a segment. Its reads end with ctx, and when the other one says nothing for too long.
type peerBody struct {
	p               *peers
	holder          string
	cancel          context.CancelCauseFunc
	cause           func() error  // why it was cancelled; nil = it was not
	body            io.ReadCloser // nil = none yet
	frames          *frameReader
	left            int64 // bytes that are to come; -1 = not known yet
	closed, counted bool
	ended           error
}

// begin sends the request and waits for a version that fits it.
func (b *peerBody) begin(ctx context.Context, r *SegmentRequest) (v cache.Version, err error) {
	if err := b.request(ctx, r); err != nil {
		return v, err
	}
	v, err = b.frames.version()
	switch {
	case err != nil:
		return v, b.explain(err)
	case r.Want != nil && v != *r.Want:
		return v, fmt.Errorf("%w: it has another version", cache.ErrChanged)
	case r.Offset > v.SegmentLength(r.Key.Index):
		return v, fmt.Errorf("%w: version has no byte %d in segment %d", errFrame, r.Offset, r.Key.Index)
	}
	b.left = v.SegmentLength(r.Key.Index) - r.Offset
	return v, nil
}

// request sends the request and sees that the answer is frames.
func (b *peerBody) request(ctx context.Context, r *SegmentRequest) error {
	uri := r.uri()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.holder+uri, nil)
	if err != nil {
		return fmt.Errorf("cannot make a request: %w", err)
	}
	req.Header.Set(SignatureHeader, sign(b.p.o.Secret, b.p.o.Name, http.MethodGet, b.holder, uri, time.Now()))
	answer, err := b.p.client.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			b.p.leaveAlone(b.holder)
			b.p.complain(b.holder, "another gateway cannot be reached", "error", err, "advice", "see that it runs, and that its advertise in [peer] is a URL for this host")
		}
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	b.body = answer.Body
	if answer.StatusCode != http.StatusOK {
		b.p.complain(b.holder, "another gateway refuses to send what it has fetched",
			"error", answer.Status, "advice", "give both the same secret in [peer], each its own advertise, and clocks that agree")
		return fmt.Errorf("%w with status %d", errRefused, answer.StatusCode)
	}
	b.frames = newFrameReader(&watched{b})
	return nil
}

// Read implements io.Reader. It is io.EOF only when the segment is complete.
func (b *peerBody) Read(p []byte) (int, error) {
	if b.ended != nil {
		return 0, b.ended
	}
	n, err := b.frames.Read(p)
	b.left -= int64(n)
	switch {
	case b.left < 0:
		n, b.ended = 0, fmt.Errorf("%w: it has more bytes than the segment", errFrame)
	case errors.Is(err, io.EOF) && b.left > 0:
		b.ended = fmt.Errorf("%w: it ends %d bytes before the segment", errFrame, b.left)
	case err != nil:
		b.ended = b.explain(err)
	}
	switch {
	case b.left == 0:
		b.count("ok")
	case b.ended != nil:
		b.count(resultOf(b.ended))
	}
	return n, b.ended
}

// count counts how the read has gone, once.
func (b *peerBody) count(result string) {
	if !b.counted {
		b.counted = true
		b.p.book.fetched(result)
	}
}

// explain gives the cause of an error of reading.
func (b *peerBody) explain(err error) error {
	cause := b.cause()
	if cause == nil || errors.Is(err, io.EOF) {
		return err
	}
	if errors.Is(cause, errStalled) {
		b.p.leaveAlone(b.holder)
	}
	return fmt.Errorf("reading from another gateway ended: %w", cause)
}

// Close implements io.Closer. An answer that was not read to its end is cut.
func (b *peerBody) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	if b.left == 0 && b.frames != nil {
		b.finish()
	}
	b.cancel(nil)
	if b.left >= 0 {
		b.count("abandoned")
	}
	if b.body == nil {
		return nil
	}
	return b.body.Close()
}

// finish reads what stands behind the last byte, so that the connection can be used again. It does not wait for long: the connection
// is not worth that.
func (b *peerBody) finish() {
	late := time.AfterFunc(b.p.finish, func() { b.cancel(nil) })
	defer late.Stop()
	if _, err := b.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
		_, _ = b.frames.r.ReadByte() // the end of the answer itself
	}
}

// watched reads the body, and gives up when nothing comes for too long.
type watched struct{ b *peerBody }

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	stall := time.AfterFunc(w.b.p.stall, func() { w.b.cancel(errStalled) })
	defer stall.Stop()
	return w.b.body.Read(p)
}
