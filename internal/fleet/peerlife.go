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
	debtTime   = 5 * time.Second        // without a request to a peer until its silence is forgotten
	probeAfter = 100 * time.Millisecond // silence of a peer that owes a response until it is probed
)

// life holds the signs of life of a peer: all bytes that its connections bring.
type life struct {
	mu      sync.Mutex // guards the fields below
	probed  bool       // a goroutine probes the peer
	waiting int        // requests without a response
	asked   time.Time  // of the last request
	owes    time.Time  // of the first request after the last bytes
	heard   time.Time  // of the last bytes
}

// ask notes a request.
func (l *life) ask() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.owes.After(l.heard) || now.Sub(l.asked) > debtTime {
		l.owes = now
	}
	l.asked = now
	l.waiting++
}

// end notes the end of a request, with a response or without one.
func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting--
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
	l.probed = l.waiting > 0
	return l.probed
}

// probe probes a peer while it owes responses and is silent: a living one replies at once.
func (f *Fleet) probe(to *url.URL, l *life) {
	defer panics.Contain("probing another gateway")
	if !l.beginProbes() {
		return
	}
	alive := *to
	alive.Path = alivePath
	for l.nextProbe() {
		left := probeAfter - l.silence()
		if left <= 0 {
			f.sendProbe(&alive)
		}
		select {
		case <-time.After(max(left, probeAfter/2)):
		case <-f.life.Done():
			return
		}
	}
}

// sendProbe sends a probe to a peer, and waits for the response.
func (f *Fleet) sendProbe(to *url.URL) {
	ctx, cancel := context.WithTimeout(f.life, silence(f.o.LockTTL))
	defer cancel()
	r := (&http.Request{Method: http.MethodGet, URL: to, Header: http.Header{}}).WithContext(ctx)
	if resp, err := f.transport.RoundTrip(r); err == nil {
		_ = resp.Body.Close() // it has no content
	}
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
	case l.waiting > 0:
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
	added := &life{}
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
	return f.lives.of(to.Host).silence()
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
		return &heardConn{conn, l.of(address)}, nil
	}
}

// heardConn is a connection to a peer.
type heardConn struct {
	net.Conn
	life *life
}

// Read implements io.Reader.
func (c *heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.life.hear()
	}
	return n, err
}
