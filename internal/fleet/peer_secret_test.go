package fleet

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/logtest"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/scrypt"
)

// TestPeerWithAnotherSecret: a gateway without the secret can neither send nor serve requests. Both
// sides log it once, and the sender backs off.
func TestPeerWithAnotherSecret(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	here, there := &logtest.Buffer{}, &logtest.Buffer{}
	o.Log = slog.New(slog.NewTextHandler(there, nil))
	b := serveAs(t, o, rejects(errors.New("BUG: a client without the secret gets a response")))
	o.Secret, o.Log = otherSecret, slog.New(slog.NewTextHandler(here, nil))
	a := member(t, o, 1)
	for range 3 {
		_, _, err := a.Open(t.Context(), b.o.Advertise, cache.PeerRequest{Key: testKey})
		require.Error(t, err)
		a.lives.ofPeer(b.o.Advertise).noteReply()
	}
	require.Equal(t, map[string]int64{"refused": 3}, a.Stats().PeerFetches)
	require.Equal(t, 1, here.Count("gateway="+b.o.Advertise), here)
	require.Equal(t, 1, here.Count("give all gateways the same secret in [peer]"), here)
	eventually.True(
		t,
		func() bool { return there.Count("a connection to [peer] listen was rejected") == 1 },
		"the other side says so",
	)
	require.Empty(t, b.Stats().PeerRequests)
	_, _, err := a.Open(t.Context(), "https://127.0.0.1:1", cache.PeerRequest{Key: testKey})
	require.ErrorIs(t, err, cache.ErrUnreachable)
	require.Equal(t, 1, here.Count("gateway=https://127.0.0.1:1 error="), here)
}

// TestClientsWithoutTheSecret: the listener of peers serves no client without TLS 1.3, without a
// certificate, or with a certificate of another secret.
func TestClientsWithoutTheSecret(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	b := serveAs(t, o, rejects(errors.New("BUG: a client without the secret gets a response")))
	address := strings.TrimPrefix(b.o.Advertise, "https://")
	own, err := peerTLS(otherSecret)
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
		if err == nil { // in TLS 1.3 the client is rejected when it has finished its part
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
	response, _ := io.ReadAll(conn)
	require.NotContains(t, string(response), "200")
	require.Empty(t, b.Stats().PeerRequests)
}

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// TestStopBeforeServe: ServePeers serves nothing after StopPeers.
func TestStopBeforeServe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o := fleetOf("127.0.0.1:1")
	o.Advertise = "https://" + ln.Addr().String()
	f := gatewayOf(t, o)
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

// TestIdleConnectionsKeepNoPeerOut: idle connections without a handshake keep no peer out, also if
// it has the same address. The oldest of them are closed.
func TestIdleConnectionsKeepNoPeerOut(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	b := serveAs(t, o, rejects(cache.ErrNotFound))
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.1")}}
	var conns []net.Conn
	for range 2 * maxHandshakes {
		conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(b.o.Advertise, "https://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() }) // the listener may have closed it
		conns = append(conns, conn)
	}
	_, _, err := member(t, o, 1).Open(t.Context(), b.o.Advertise, cache.PeerRequest{Key: testKey})
	require.ErrorIs(t, err, cache.ErrNotFound, "it is served")
	for _, conn := range conns[:len(conns)-maxHandshakes] {
		_, err := conn.Read(make([]byte, 1))
		require.Error(t, err, "it is closed")
	}
}

// TestAdmission: at its limit, an address loses its oldest handshake, and at the limit of all, the
// oldest of all ends. Connections of peers are counted separately, each once.
func TestAdmission(t *testing.T) {
	var a admission
	conn := func(address string) *peerConn {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = near.Close(); _ = far.Close() }) // a pipe has no error
		return &peerConn{Conn: far, admission: &a, from: netip.MustParseAddr(address)}
	}
	first := conn("10.0.0.1")
	require.Nil(t, a.addHandshake(first))
	busy := conn("10.0.0.2")
	require.Nil(t, a.addHandshake(busy))
	for range maxHandshakesIP - 1 {
		require.Nil(t, a.addHandshake(conn("10.0.0.2")))
	}
	require.Same(t, busy, a.addHandshake(conn("10.0.0.2")), "its own oldest")
	for i := range maxHandshakes - maxHandshakesIP - 1 {
		require.Nil(t, a.addHandshake(conn(fmt.Sprintf("10.0.1.%d", i))))
	}
	require.Same(t, first, a.addHandshake(conn("10.0.0.3")), "the oldest of all")

	var peers []*peerConn
	for i := range maxPeerConns {
		c := conn("10.0.0.4")
		a.addHandshake(c)
		require.True(t, a.promote(c))
		require.True(t, a.promote(c), "it is counted once")
		if peers = append(peers, c); i < 2 {
			require.NoError(t, c.Close())
			require.NoError(t, c.Close())
		}
	}
	for range 2 {
		c := conn("10.0.0.4")
		a.addHandshake(c)
		require.True(t, a.promote(c))
	}
	c := conn("10.0.0.4")
	a.addHandshake(c)
	require.False(t, a.promote(c))
	require.Equal(t, maxPeerConns, a.peers)
	require.NoError(t, c.Close())
	require.NoError(t, peers[2].Close())
	require.Equal(t, maxPeerConns-1, a.peers)
}

// TestSecretIsStretched: the keys of a secret are derived by scrypt, once in a process, and differ
// from the keys of version 1.
func TestSecretIsStretched(t *testing.T) {
	const secret = otherSecret
	want, err := scrypt.Key([]byte(secret), []byte("fdfs-gateway fleet secret v2"), 32768, 8, 1, 32)
	require.NoError(t, err)
	require.Equal(t, want, stretched.get(secret))
	require.Same(t, &stretched.get(secret)[0], &stretched.get(secret)[0], "computed once")
	plain, err := hkdf.Key(sha256.New, []byte(secret), nil, peerKeyInfo, 32)
	require.NoError(t, err)
	require.NotEqual(t, plain, derive(secret, peerKeyInfo))
	require.NotEqual(t, derive(secret, recordKeyInfo), derive(secret, peerKeyInfo))
}

// TestPeerOfVersion1: the error for a gateway that derives its keys as version 1 differs from the
// error for another secret.
func TestPeerOfVersion1(t *testing.T) {
	o := fleetOf("127.0.0.1:1")
	config, err := peerTLS(o.Secret)
	require.NoError(t, err)
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	for name, want := range map[string]error{"fdfs-gateway": ErrKeyVersion, peerName: ErrSecret} {
		cert := &x509.Certificate{DNSNames: []string{name}, PublicKey: key.Public()}
		err := config.VerifyConnection(tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}})
		require.Equal(t, want, err)
		require.ErrorIs(t, err, ErrSecret)
	}
}
