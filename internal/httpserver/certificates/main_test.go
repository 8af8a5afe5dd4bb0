package certificates

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/certtest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rsaKey = sync.OnceValue(func() crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return key
})

// newAuthority makes a certificate authority that by has signed; nil = self-signed.
func newAuthority(t testing.TB, name string, by *certtest.Certificate) *certtest.Certificate {
	t.Helper()
	now := time.Now()
	return certtest.New(t, certtest.Order{Name: name, CA: true, By: by, Begin: now.Add(-24 * time.Hour),
		End: now.Add(24 * time.Hour)})
}

// order describes a certificate to be made, and the chain that is written after it.
type order struct {
	names      []string
	key        crypto.Signer
	begin, end time.Time
	chain      []*certtest.Certificate
}

// issue writes a certificate and its key to files in dir, which are named name.
func issue(t testing.TB, by *certtest.Certificate, dir, name string, o order) Pair {
	t.Helper()
	c := certtest.New(t, certtest.Order{Name: name, Hosts: o.names, Key: o.key, Begin: o.begin, End: o.end, By: by})
	p := Pair{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
	c.Write(t, p.Cert, p.Key, o.chain...)
	return p
}

// shake makes a handshake, and reads the bytes of the server, so that the client gets its tickets.
func shake(t testing.TB, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", server)
	require.NoError(t, err)
	defer ln.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		if c, err := ln.Accept(); err == nil {
			_, _ = c.Write([]byte("x")) // the client reports an error
			_ = c.Close()
		}
	}()
	defer func() { <-served }()
	c, err := tls.Dial("tcp", ln.Addr().String(), client)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer c.Close()
	_, err = io.ReadFull(c, make([]byte, 1))
	return c.ConnectionState(), err
}
