package fleet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/process/logfile"
	"fastdfs-gateway/internal/process/panics"
)

const (
	maxStreams    = 1000            // requests of one peer at a time
	handshakeTime = 3 * time.Second // for a TLS handshake
	peerIdle      = 2 * time.Minute // until a connection without requests is closed
)

// PeerOpener opens an entry for another gateway, as the PeerOpen of a cache.Cache does. Reads of
// the body end with ctx.
type PeerOpener func(ctx context.Context, r cache.PeerRequest) (m cache.Meta, body io.ReadCloser, err error)

// newPeerServer returns the server of entries, without its handler.
func newPeerServer(
	config *tls.Config, lockTTL time.Duration, limits *admission, warn *logfile.Warner,
) *http.Server {
	return &http.Server{
		TLSConfig: config.Clone(), Protocols: onlyHTTP2(), HTTP2: serverHTTP2(lockTTL),
		ReadHeaderTimeout: handshakeTime, IdleTimeout: peerIdle, MaxHeaderBytes: 16 << 10,
		ErrorLog:  log.New(peerLog{warn}, "", 0),
		ConnState: limits.changed,
	}
}

// serverHTTP2 is http2Config with pings, which find requesting gateways that are gone.
func serverHTTP2(lockTTL time.Duration) *http.HTTP2Config {
	config := http2Config(lockTTL)
	config.SendPingTimeout, config.PingTimeout = maxSilence(lockTTL)/2, maxSilence(lockTTL)/2
	return config
}

// ServePeers serves other gateways on a listener until HandOver, StopPeers or Close closes that.
// Several listeners need one call each, with the same open.
func (f *Fleet) ServePeers(ln net.Listener, open PeerOpener) error {
	f.handle.Do(func() {
		f.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.servePeer(w, r, open) })
	})
	err := f.server.ServeTLS(peerListener{ln, &f.admission}, "", "")
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return errors.Join(fmt.Errorf("cannot serve peers on %s: %w", ln.Addr(), err), ln.Close())
}

// StopPeers rejects new requests of peers, waits until running responses have ended, or ctx has,
// and closes the listener and the connections. (http.Server.Shutdown would keep each HTTP/2
// connection for a second more.) After the end of the responses, further calls have no effect.
func (f *Fleet) StopPeers(ctx context.Context) error {
	if f.drained.Load() {
		return nil
	}
	err := f.responses.Acquire(ctx, math.MaxInt64)
	if f.drained.Store(err == nil); err != nil {
		err = fmt.Errorf("responses to peers were aborted: %w", context.Cause(ctx))
	}
	return errors.Join(err, f.server.Close())
}

// peerLog receives the log lines of net/http, most of them about failed TLS handshakes of other
// clients, or of a gateway with another secret.
type peerLog struct{ warn *logfile.Warner }

// Write implements io.Writer.
func (l peerLog) Write(line []byte) (int, error) {
	l.warn.Warn("listener", "a connection to [peer] listen was rejected, or has failed",
		"error", strings.TrimSpace(string(line)),
		"advice", "if it came from a gateway: give all gateways the same secret in [peer], and the same version")
	return len(line), nil
}

// servePeer handles a request of another gateway.
func (f *Fleet) servePeer(w http.ResponseWriter, r *http.Request, open PeerOpener) {
	if !f.responses.TryAcquire(1) { // this gateway is stopping
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	defer f.responses.Release(1)
	defer panics.Abort("serving a peer")
	if f.self.Load().verify(r.TLS) != nil { // the secret has changed since the connection was made
		w.Header().Set("Connection", "close") // GOAWAY
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	if r.URL.Path == alivePath {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	status, err := f.respond(w, r, open)
	f.stats.change(func(n *Stats) { n.PeerRequests[status]++ })
	f.o.Log.Debug("request of a peer", "peer", r.RemoteAddr, "target", r.Header.Get(requestHeader), "status", status,
		"error", err)
	if status == http.StatusOK && err != nil {
		panic(http.ErrAbortHandler) // RST_STREAM: the peer sees that the body is incomplete
	}
}

// respond sends an entry, and a segment as it arrives. With status 200, the error is one of the
// body.
func (f *Fleet) respond(w http.ResponseWriter, r *http.Request, open PeerOpener) (status int, err error) {
	request, err := parseEntryRequest(r)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return http.StatusBadRequest, err
	}
	var m cache.Meta
	var body io.ReadCloser
	if err = f.waitFor(r.Context(), request.Purge); err == nil {
		m, body, err = open(r.Context(), request.PeerRequest)
	}
	status, _ = outcomeOf(err)
	if err == nil || status == http.StatusNotFound {
		head, _ := json.Marshal(headOf(m)) // never fails
		w.Header().Set(entryHeader, string(head))
	}
	if body == nil {
		w.WriteHeader(status)
		return status, err
	}
	defer body.Close()
	left := m.Version.SegmentLength(request.Key.Index) - request.Offset
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(left, 10))
	to := flushWriter{w}
	if _, err = to.Write(nil); err == nil { // sends the head
		var sent int64
		if sent, err = io.Copy(to, body); err == nil && sent < left {
			err = io.ErrUnexpectedEOF
		}
	}
	return status, err
}

// flushWriter sends each write at once. A stream of the cache is not copied: its WriteTo writes the
// stored pieces.
type flushWriter struct{ http.ResponseWriter }

// Write implements io.Writer.
func (w flushWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	if err == nil {
		err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	return n, err
}
