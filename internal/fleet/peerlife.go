package fleet

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"fastdfs-gateway/internal/fdfs/backoff"
	"fastdfs-gateway/internal/process/panics"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	debtTime   = 5 * time.Second        // without a request to a peer until its silence is forgotten
	probeAfter = 50 * time.Millisecond  // silence of a peer that owes a response until it is probed
	lateBytes  = 50 * time.Millisecond  // after the last timer, for bytes that came while this process did not run
	maxLate    = 450 * time.Millisecond // usual time of a reply; a later one comes from a link that was dead
)

// life holds the back-off of a peer, and its signs of life: all bytes that its connections bring. A
// peer that owes a response and is silent is probed, also after the request was given up. If it is
// silent while a probe waits, its connections are closed, which ends all requests to it.
type life struct {
	mu       sync.Mutex    // guards the fields below
	backoff  backoff.State // of a peer that could not be reached
	probed   bool          // a goroutine probes the peer
	requests int           // whose responses have not ended
	asked    time.Time     // of the last request
	owes     time.Time     // of the first request after the last bytes
	heard    time.Time     // of the last bytes
	late     time.Duration // usual time until the reply to a probe
	conns    map[net.Conn]struct{}
}

// mayAsk reports whether the peer is not in back-off. After one it returns true to one caller,
// whose request probes the peer, and false to others until that calls noteReply, noteFailure or
// endProbe.
func (l *life) mayAsk() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.backoff.Until().IsZero() || l.backoff.Probe(time.Now())
}

// noteReply ends the back-off.
func (l *life) noteReply() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backoff.Reset()
}

// noteFailure begins a back-off.
func (l *life) noteFailure() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backoff.Fail(peerBackoff, time.Now())
}

// endProbe ends a probe without a result, such as one that the caller cancelled.
func (l *life) endProbe() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backoff.Abandon()
}

// watch bounds one request to a peer: it is idle for limit at most.
type watch struct {
	life   *life
	limit  time.Duration
	idle   *time.Timer     // cancels the request with errIdle
	probe  *time.Timer     // begins to probe the peer
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	ended  sync.Once
}

// watch bounds a request to a peer until endRequest.
func (f *Fleet) watch(ctx context.Context, to *url.URL, l *life, limit time.Duration) *watch {
	w := &watch{life: l, limit: limit}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	l.addRequest()
	w.idle = time.AfterFunc(limit, func() { w.cancel(errIdle) })
	w.probe = time.AfterFunc(probeAfter, func() { f.probe(to, l) })
	return w
}

// endRequest ends the request. Further calls do nothing.
func (w *watch) endRequest() {
	w.ended.Do(func() {
		w.idle.Stop()
		if w.ctx.Err() == nil { // otherwise given up: the peer may live
			w.probe.Stop()
		}
		w.life.removeRequest()
		w.cancel(nil)
	})
}

// addRequest notes a request.
func (l *life) addRequest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.owes.After(l.heard) || now.Sub(l.asked) > debtTime {
		l.owes = now
	}
	l.asked = now
	l.requests++
}

// removeRequest notes the end of a request, with a whole response or without one.
func (l *life) removeRequest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests--
}

// owesNow reports whether the peer was asked a short time ago, and has sent nothing since. mu is
// held.
func (l *life) owesNow() bool { return l.owes.After(l.heard) && time.Since(l.asked) < debtTime }

// beginProbes reports whether the caller is the one that probes the peer, until nextProbe returns
// false.
func (l *life) beginProbes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.probed
	l.probed = true
	return first
}

// nextProbe reports whether a request to the peer has not ended. The first probe is also sent if
// the peer owes the response to one that was given up.
func (l *life) nextProbe(first bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probed = l.requests > 0 || first && l.owesNow()
	return l.probed
}

// probe probes a peer while it owes responses and is silent: a living one replies at once. A peer
// that sends nothing while a probe waits is not asked for a while. Its silence before that does not
// count: the link may be back, and slow.
func (f *Fleet) probe(to *url.URL, l *life) {
	defer panics.Contain("probing another gateway")
	if !l.beginProbes() {
		return
	}
	wait := maxSilence(f.o.LockTTL) - probeAfter - lateBytes
	for first := true; l.nextProbe(first); first = false {
		silent, began := l.silence(), time.Now()
		probes := silent >= probeAfter
		if probes {
			f.sendProbe(to, l, wait)
		}
		select {
		case <-time.After(max(probeAfter-silent, lateBytes)):
		case <-f.life.Done():
			return
		}
		if probes && time.Since(began) >= wait && l.silentSince(began) {
			l.noteFailure()
			l.closeConns()
		}
	}
}

// closeConns closes the connections of the peer.
func (l *life) closeConns() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		_ = conn.Close() // the peer has sent nothing
	}
	clear(l.conns)
}

// sendProbe sends a probe to a peer, and waits for the response.
func (f *Fleet) sendProbe(to *url.URL, l *life, wait time.Duration) {
	ctx, cancel := context.WithTimeout(f.life, wait)
	defer cancel()
	if took, err := f.callAlive(ctx, to); err == nil {
		l.replied(took)
	}
}

// callAlive requests /alive of a peer, and returns the time until the response.
func (f *Fleet) callAlive(ctx context.Context, peer *url.URL) (took time.Duration, err error) {
	to := *peer
	to.Path = alivePath
	r := &http.Request{Method: http.MethodGet, URL: &to, Header: http.Header{}}
	began := time.Now()
	resp, err := f.transport.RoundTrip(r.WithContext(ctx))
	if err == nil {
		_ = resp.Body.Close() // it has no content
	}
	return time.Since(began), err
}

// replied notes the time until the reply to a probe. Short ones lower the usual time slowly: the
// peer may be on a busy host.
func (l *life) replied(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = max(min(d, maxLate), l.late-l.late/64)
}

// hear notes bytes.
func (l *life) hear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = time.Now()
}

// silentSince reports whether the peer has sent nothing since then.
func (l *life) silentSince(began time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard.Before(began)
}

// silence returns the time since the last bytes, or since the first request after them; 0 if the
// peer owes no response.
func (l *life) silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.owesNow():
		return time.Since(l.owes)
	case l.requests > 0:
		return time.Since(l.heard)
	}
	return 0
}

// lives holds what is known of the peers by their addresses.
type lives struct{ byAddress *lru.Cache[string, *life] }

func newLives() lives {
	byAddress, _ := lru.New[string, *life](maxPeers) // fails only for sizes below 1
	return lives{byAddress}
}

// ofPeer returns the life of a peer with a URL.
func (l lives) ofPeer(url string) *life {
	address := strings.TrimPrefix(url, "https://")
	if _, _, err := net.SplitHostPort(address); err != nil { // as net/http dials it
		address = net.JoinHostPort(strings.Trim(address, "[]"), "443")
	}
	return l.of(address)
}

func (l lives) of(address string) *life {
	if known, ok := l.byAddress.Get(address); ok {
		return known
	}
	added := &life{conns: make(map[net.Conn]struct{})}
	if known, ok, _ := l.byAddress.PeekOrAdd(address, added); ok {
		return known
	}
	return added
}

// Silence implements cache.Fleet.
func (f *Fleet) Silence(peer string) (silent, usual time.Duration) {
	l := f.lives.ofPeer(peer)
	silent = l.silence()
	l.mu.Lock()
	defer l.mu.Unlock()
	return silent, 2 * l.late
}

// dialer is the type of http.Transport.DialContext.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// heardBy returns a dialer whose connections note the signs of life of the other end.
func (l lives) heardBy(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		life := l.of(address)
		life.mu.Lock()
		defer life.mu.Unlock()
		life.conns[conn] = struct{}{}
		return &heardConn{conn, life}, nil
	}
}

// heardConn is a connection to a peer.
type heardConn struct {
	net.Conn
	life *life
}

// Close implements net.Conn.
func (c *heardConn) Close() error {
	c.life.mu.Lock()
	delete(c.life.conns, c.Conn)
	c.life.mu.Unlock()
	return c.Conn.Close()
}

// Read implements io.Reader.
func (c *heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.life.hear()
	}
	return n, err
}
