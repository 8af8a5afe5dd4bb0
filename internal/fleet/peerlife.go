package fleet

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"fastdfs-gateway/internal/process/panics"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	debtTime   = 5 * time.Second       // without a request to a peer until its silence is forgotten
	probeAfter = 50 * time.Millisecond // silence of a peer that owes a response until it is probed
	lateBytes  = 50 * time.Millisecond // after the last timer, for bytes that came while this process did not run
)

// life holds the signs of life of a peer: all bytes that its connections bring. A peer that owes a
// response and is silent is probed. After maxSilence its connections are closed, which ends all
// requests to it.
type life struct {
	mu       sync.Mutex    // guards the fields below
	probed   bool          // a goroutine probes the peer
	requests int           // whose responses have not ended
	asked    time.Time     // of the last request
	owes     time.Time     // of the first request after the last bytes
	heard    time.Time     // of the last bytes
	late     time.Duration // usual time until the reply to a probe
	conns    map[net.Conn]struct{}
}

// watch bounds one request to a peer: it is idle for limit at most.
type watch struct {
	life   *life
	limit  time.Duration
	idle   *time.Timer // cancels the request with errIdle
	probe  *time.Timer // begins to probe the peer
	cancel context.CancelCauseFunc
	ended  sync.Once
}

// watch returns the context of a request to a peer, and its bounds, until endRequest.
func (f *Fleet) watch(ctx context.Context, to *url.URL, limit time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{life: f.lives.of(to.Host), limit: limit, cancel: cancel}
	w.life.addRequest()
	w.idle = time.AfterFunc(limit, func() { cancel(errIdle) })
	w.probe = time.AfterFunc(probeAfter, func() { f.probe(to, w.life) })
	return ctx, w
}

// endRequest ends the request. Further calls do nothing.
func (w *watch) endRequest() {
	w.ended.Do(func() {
		w.idle.Stop()
		w.probe.Stop()
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

// beginProbes reports whether the caller is the one that probes the peer, until nextProbe returns
// false.
func (l *life) beginProbes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.probed
	l.probed = true
	return first
}

// nextProbe reports whether the peer still owes a response.
func (l *life) nextProbe() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probed = l.requests > 0
	return l.probed
}

// probe probes a peer while it owes responses and is silent: a living one replies at once. A peer
// that is silent for too long is not asked for a while.
func (f *Fleet) probe(to *url.URL, l *life) {
	defer panics.Contain("probing another gateway")
	if !l.beginProbes() {
		return
	}
	alive := *to
	alive.Path = alivePath
	for most := maxSilence(f.o.LockTTL) - lateBytes; l.nextProbe(); {
		silent := l.silence()
		if silent >= probeAfter {
			f.sendProbe(&alive, max(most-silent, probeAfter)) // also after this process was stopped
		}
		select {
		case <-time.After(max(probeAfter-silent, lateBytes)):
		case <-f.life.Done():
			return
		}
		if l.silence() >= most {
			f.backoff.Fail(to.String())
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
func (f *Fleet) sendProbe(to *url.URL, wait time.Duration) {
	ctx, cancel := context.WithTimeout(f.life, wait)
	defer cancel()
	r := (&http.Request{Method: http.MethodGet, URL: to, Header: http.Header{}}).WithContext(ctx)
	began := time.Now()
	if resp, err := f.transport.RoundTrip(r); err == nil {
		_ = resp.Body.Close() // it has no content
		f.lives.of(to.Host).replied(time.Since(began))
	}
}

// replied notes the time until the reply to a probe. Short ones lower the usual time slowly: the
// peer may be on a busy host.
func (l *life) replied(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = max(d, l.late-l.late/64)
}

// hear notes bytes.
func (l *life) hear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = time.Now()
}

// silence returns the time since the last bytes, or since the first request after them; 0 if the
// peer owes no response.
func (l *life) silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.owes.After(l.heard) && time.Since(l.asked) < debtTime:
		return time.Since(l.owes)
	case l.requests > 0:
		return time.Since(l.heard)
	}
	return 0
}

// lives holds the signs of life of the peers by their addresses.
type lives struct{ byAddress *lru.Cache[string, *life] }

func newLives() lives {
	byAddress, _ := lru.New[string, *life](maxPeers) // fails only for sizes below 1
	return lives{byAddress}
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
func (f *Fleet) Silence(peer string) time.Duration {
	to, err := parsePeer(peer)
	if err != nil {
		return 0
	}
	l := f.lives.of(to.Host)
	silent := l.silence()
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, silent-2*l.late)
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
