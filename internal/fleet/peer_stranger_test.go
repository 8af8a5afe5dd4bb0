package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fastdfs-gateway/internal/backoff"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/eventually"
	"fastdfs-gateway/internal/redistest"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who does not know the secret can neither ask nor answer; both sides say so once, and the asker
// does not try again at once.
func TestPeerWithAnotherSecret(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	here, there := &lines{}, &lines{}
	o.Log = slog.New(slog.NewTextHandler(there, nil))
	b := serveAs(t, o, refuses(errors.New("BUG: a stranger is answered")))
	o.Secret, o.Log = "another secret than the others have", slog.New(slog.NewTextHandler(here, nil))
	a := member(t, o, 1)
	for range 3 {
		_, _, err := a.Open(t.Context(), b.o.Advertise, cache.PeerRequest{Key: testKey})
		require.Error(t, err)
		a.backoff = backoff.NewSet[string](peerBackoff, maxPeers)
	}
	require.Equal(t, map[string]int64{"refused": 3}, a.Stats().PeerFetches)
	require.Equal(t, 1, here.count("gateway="+b.o.Advertise), here)
	require.Equal(t, 1, here.count("give all gateways the same secret in [peer]"), here)
	eventually.True(
		t,
		func() bool { return there.count("a connection to [peer] listen was refused") == 1 },
		"the other side says so",
	)
	require.Empty(t, b.Stats().PeerRequests)
	_, _, err := a.Open(t.Context(), "https://127.0.0.1:1", cache.PeerRequest{Key: testKey})
	require.ErrorIs(t, err, errUnreachable)
	require.Equal(t, 1, here.count("gateway=https://127.0.0.1:1 error="), here)
}

// Strangers get no byte from the listener of peers: without TLS 1.3, without a certificate, or with
// one of their own.
func TestStrangersAreNotAnswered(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	b := serveAs(t, o, refuses(errors.New("BUG: a stranger is answered")))
	address := strings.TrimPrefix(b.o.Advertise, "https://")
	own, err := peerTLS("the secret of a stranger")
	require.NoError(t, err)
	own.VerifyConnection, own.NextProtos = nil, []string{"h2"}
	old, err := peerTLS(o.Secret)
	require.NoError(t, err)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for name, config := range map[string]*tls.Config{
		"no certificate": {InsecureSkipVerify: true, NextProtos: []string{"h2"}}, "own certificate": own,
		"old TLS": old,
	} {
		conn, err := tls.Dial("tcp", address, config)
		if err == nil { // in TLS 1.3 the client is refused when it has finished its part
			_, _ = io.WriteString(conn, http2Preface)
			_, err = io.ReadAll(conn)
			_ = conn.Close()
		}
		require.ErrorContains(t, err, "remote error: tls:", name)
	}
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /entry/f HTTP/1.1\r\nHost: a\r\n\r\n")
	require.NoError(t, err)
	answer, _ := io.ReadAll(conn)
	require.NotContains(t, string(answer), "200")
	require.Empty(t, b.Stats().PeerRequests)
}

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// TestStopBeforeServe: a gateway that is told to stop as soon as it has started does not begin to
// serve peers.
func TestStopBeforeServe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f, err := New(
		Options{
			Addresses: []string{"127.0.0.1:1"},
			Advertise: "https://" + ln.Addr().String(),
			Secret:    "the secret of a test",
		},
	)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	require.NoError(t, f.StopPeers(t.Context()))
	soon, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	require.NoError(t, f.StopPeers(soon), "a process that was replaced stops once more when it ends")
	served := make(chan error, 1)
	go func() { served <- f.ServePeers(ln, nil) }()
	select {
	case err := <-served:
		require.NoError(t, err)
	case <-time.After(testTimeout):
		t.Error("it serves") // Close ends it
	}
}

// Connections of strangers that say nothing take a bounded number of places, each for a short time
// only.
func TestConnectionsAreBounded(t *testing.T) {
	changed := member(t, fleetOf("127.0.0.1:1"), 1).server.ConnState
	closed := func() bool {
		near, far := net.Pipe()
		defer near.Close()
		changed(far, http.StateNew)
		_ = near.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := near.Read(make([]byte, 1))
		return errors.Is(err, io.EOF)
	}
	for range maxConnections - 1 {
		changed(nil, http.StateNew)
	}
	require.False(t, closed())
	require.True(t, closed())
	require.True(t, closed())
	for range 3 {
		changed(nil, http.StateClosed)
	}
	require.False(t, closed())
}
