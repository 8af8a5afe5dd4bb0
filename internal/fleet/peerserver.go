package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/logfile"
	"fastdfs-gateway/internal/panics"
)

const (
	maxStreams     = 1000            // requests of one peer at a time
	maxConnections = 1024            // of peers, and of strangers until the TLS handshake refuses them
	handshakeTime  = 3 * time.Second // for a TLS handshake
	peerIdle       = 2 * time.Minute // after which a connection without requests is closed
)

// PeerOpener is the cache of this gateway.
type PeerOpener interface {
	PeerOpen(ctx context.Context, r cache.PeerRequest) (cache.Meta, *cache.Stream, error)
}

var _ PeerOpener = (*cache.Cache)(nil)

// entryOpener gives an entry, as cache.Cache.PeerOpen does; the body is nil for facts. Reads of it
// end with ctx.
type entryOpener func(ctx context.Context, r *entryRequest) (cache.Meta, io.ReadCloser, error)

// ServePeers answers other gateways on a listener, from a cache, until StopPeers; after that it
// closes the listener and returns.
func (f *Fleet) ServePeers(ln net.Listener, c PeerOpener) error {
	return f.servePeers(ln, func(ctx context.Context, r *entryRequest) (cache.Meta, io.ReadCloser, error) {
		if err := f.waitFor(r.Purge); err != nil {
			return cache.Meta{}, nil, fmt.Errorf("%w: %w", cache.ErrNotHere, err)
		}
		m, stream, err := c.PeerOpen(ctx, r.PeerRequest)
		if err != nil || stream == nil {
			return m, nil, err // no Stream that is nil
		}
		return m, stream, nil
	})
}

func (f *Fleet) servePeers(ln net.Listener, open entryOpener) error {
	server := &peerServer{log: f.o.Log, warn: logfile.NewWarner(f.o.Log), leases: &f.leases, open: open}
	f.mu.Lock()
	if f.peersStopped {
		f.mu.Unlock()
		return ln.Close()
	}
	if f.closed || f.peerServer != nil || f.peerTLS == nil {
		f.mu.Unlock()
		return errors.Join(errors.New("the fleet has no secret, is closed, or serves peers already"), ln.Close())
	}
	f.peerServer = &http.Server{
		Handler: server, TLSConfig: f.peerTLS.Clone(), Protocols: onlyHTTP2(), HTTP2: http2Config(f.o.LockTTL),
		ReadHeaderTimeout: handshakeTime, IdleTimeout: peerIdle, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.New(server, "", 0),
	}
	serving := f.peerServer
	f.mu.Unlock()
	err := serving.ServeTLS(&cappedListener{Listener: ln, room: make(chan struct{}, maxConnections)}, "", "")
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("cannot serve peers on %s: %w", ln.Addr(), err)
}

// StopPeers refuses new requests of peers, waits until running answers have ended, or ctx has, and
// closes the listener and the connections. (http.Server.Shutdown would keep each HTTP/2 connection
// for a second more.)
func (f *Fleet) StopPeers(ctx context.Context) (err error) {
	f.mu.Lock()
	server := f.peerServer
	f.peersStopped = true
	f.mu.Unlock()
	if server == nil {
		return nil
	}
	select {
	case <-server.Handler.(*peerServer).drained():
	case <-ctx.Done():
		err = fmt.Errorf("answers to peers were cut: %w", context.Cause(ctx))
	}
	return errors.Join(err, server.Close())
}

// peerServer answers requests of other gateways.
type peerServer struct {
	log    *slog.Logger
	warn   *logfile.Warner
	leases *leases
	open   entryOpener

	mu       sync.Mutex    // guards what follows
	running  int           // requests
	draining chan struct{} // closed when draining and none is running; nil = not draining
}

// drained begins to refuse requests, and returns a channel that is closed when none is running.
func (s *peerServer) drained() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining == nil {
		s.draining = make(chan struct{})
		if s.running == 0 {
			close(s.draining)
		}
	}
	return s.draining
}

// enter counts a request; false = no more are answered. Its end calls leave.
func (s *peerServer) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining == nil {
		s.running++
	}
	return s.draining == nil
}

func (s *peerServer) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running--; s.running == 0 && s.draining != nil {
		close(s.draining)
	}
}

// Write implements io.Writer: it takes the lines that net/http logs. Failed TLS handshakes are
// those of strangers, or of a gateway with another secret.
func (s *peerServer) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	switch {
	case strings.Contains(text, "panic"):
		s.log.Error("BUG: panic while answering a peer", "error", text)
	case strings.Contains(text, "TLS handshake"):
		s.warn.Warn("handshake", "a connection to [peer] listen was refused", "error", text,
			"advice", "if it came from a gateway: give all gateways the same secret in [peer]")
	default:
		s.warn.Warn("connection", "a connection of a peer failed", "error", text)
	}
	return len(line), nil
}

// ServeHTTP implements http.Handler.
func (s *peerServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	defer s.leave()
	defer panics.Abort("answering a peer")
	status, err := s.answer(w, r)
	s.leases.answered(status)
	s.log.Debug("request of a peer", "peer", r.RemoteAddr, "target", r.URL.RequestURI(), "status", status, "error", err)
	if status == http.StatusOK && err != nil {
		panic(http.ErrAbortHandler) // RST_STREAM: the peer sees that the body is cut
	}
}

// answer sends an entry, and a segment as it arrives. With status 200, an error is one of the body.
func (s *peerServer) answer(w http.ResponseWriter, r *http.Request) (status int, err error) {
	refuse := func(status int, err error) (int, error) {
		w.WriteHeader(status)
		return status, err
	}
	if r.Method != http.MethodGet {
		return refuse(http.StatusMethodNotAllowed, errRequest)
	}
	request, err := parseEntryRequest(r.URL.RequestURI())
	if err != nil {
		return refuse(http.StatusBadRequest, err)
	}
	m, body, err := s.open(r.Context(), request)
	switch {
	case errors.Is(err, cache.ErrNotFound):
		w.Header().Set(lifetimeHeader, strconv.FormatInt(max(0, m.TTL).Milliseconds(), 10))
		return refuse(http.StatusNotFound, err)
	case errors.Is(err, cache.ErrNotHere):
		return refuse(http.StatusMisdirectedRequest, err)
	case errors.Is(err, cache.ErrChanged):
		return refuse(http.StatusConflict, err)
	case err != nil:
		return refuse(http.StatusServiceUnavailable, err)
	}
	w.Header().Set(versionHeader, formatVersion(m.Version))
	if !m.Checked.IsZero() {
		w.Header().Set(ageHeader, strconv.FormatInt(max(0, time.Since(m.Checked)).Milliseconds(), 10))
	}
	if body == nil {
		w.WriteHeader(http.StatusOK)
		return http.StatusOK, nil
	}
	defer body.Close()
	left := m.Version.SegmentLength(request.Key.Index) - request.Offset
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(left, 10))
	w.WriteHeader(http.StatusOK)
	return http.StatusOK, sendAsItArrives(w, body, left)
}

// sendAsItArrives copies n bytes, each piece as soon as it is there. Nothing is held for a stream
// out of the cache: its pieces are written from where they are.
func sendAsItArrives(w http.ResponseWriter, body io.Reader, n int64) error {
	to := flushWriter{w, http.NewResponseController(w)}
	if err := to.flush.Flush(); err != nil { // the head, which tells the version
		return err
	}
	sent, err := io.Copy(to, body)
	if err == nil && sent < n {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// flushWriter sends what is written to it at once.
type flushWriter struct {
	io.Writer
	flush *http.ResponseController
}

// Write implements io.Writer.
func (w flushWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		return n, err
	}
	return n, w.flush.Flush()
}

// cappedListener closes connections beyond its room at once: strangers cannot take all descriptors
// of the process.
type cappedListener struct {
	net.Listener
	room chan struct{} // holds one value for each open connection
}

// Accept implements net.Listener.
func (l *cappedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.room <- struct{}{}:
			return &cappedConn{Conn: &batchConn{Conn: conn}, leave: sync.OnceFunc(func() { <-l.room })}, nil
		default:
			_ = conn.Close() // it was not used
		}
	}
}

// cappedConn makes room when it is closed.
type cappedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *cappedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
