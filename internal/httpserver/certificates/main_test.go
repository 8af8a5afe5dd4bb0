package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

var rsaKey = sync.OnceValue(func() crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return key
})

func ecKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// newAuthority makes one that by has signed; nil = itself.
func newAuthority(t testing.TB, name string, by *authority) *authority {
	t.Helper()
	a := &authority{key: ecKey(t)}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	if by == nil {
		by = &authority{template, a.key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, a.key.Public(), by.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return a
}

// order is a certificate to be made.
type order struct {
	names []string
	key   crypto.Signer // nil = a new one
	begin time.Time     // zero = an hour ago
	end   time.Time     // zero = in 90 days
	chain []*authority  // that are written behind it
}

// issue writes a certificate and its key to files of a name in dir.
func (a *authority) issue(t testing.TB, dir, name string, o order) Pair {
	t.Helper()
	if o.key == nil {
		o.key = ecKey(t)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: o.begin, NotAfter: o.end,
		Subject: pkix.Name{CommonName: name}}
	if o.begin.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if o.end.IsZero() {
		template.NotAfter = time.Now().Add(90 * 24 * time.Hour)
	}
	for _, host := range o.names {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, o.key.Public(), a.key)
	require.NoError(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for _, c := range o.chain {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})...)
	}
	der, err = x509.MarshalPKCS8PrivateKey(o.key)
	require.NoError(t, err)
	p := Pair{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
	require.NoError(t, os.WriteFile(p.Cert, text, 0o600))
	require.NoError(t, os.WriteFile(p.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return p
}

// shake makes a handshake, and reads what the server sends, so that a client gets its tickets.
func shake(t testing.TB, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", server)
	require.NoError(t, err)
	defer ln.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		if c, err := ln.Accept(); err == nil {
			_, _ = c.Write([]byte("x")) // an error is that of the client
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
