// Package certtest makes certificates for tests.
//
//	ca := certtest.New(t, certtest.Order{Name: "ca", CA: true})
//	leaf := certtest.New(t, certtest.Order{Hosts: []string{"a.example", "127.0.0.1"}, By: ca})
//	leaf.Write(t, "a.crt", "a.key", ca)
package certtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Order describes a certificate. The zero value of each field means its default.
type Order struct {
	Name  string        // common name
	Hosts []string      // names and addresses
	Key   crypto.Signer // default: a new one of P-256
	Begin time.Time     // default: an hour before End, or now
	End   time.Time     // default: in 90 days
	CA    bool          // may sign others
	By    *Certificate  // issuer; default: self-signed
}

// Certificate is a certificate with its key.
type Certificate struct {
	*x509.Certificate
	Key crypto.Signer
}

// New makes a certificate.
func New(t testing.TB, o Order) *Certificate {
	t.Helper()
	c, err := Make(o)
	require.NoError(t, err)
	return c
}

// Make is New for a program that is no test.
func Make(o Order) (*Certificate, error) {
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:   pkix.Name{CommonName: o.Name},
		NotBefore: o.Begin, NotAfter: o.End, IsCA: o.CA, BasicConstraintsValid: o.CA}
	if o.End.IsZero() {
		template.NotAfter = time.Now().Add(90 * 24 * time.Hour)
	}
	if now := time.Now(); o.Begin.IsZero() {
		template.NotBefore = now.Add(-time.Hour)
		if !template.NotAfter.After(now) {
			template.NotBefore = template.NotAfter.Add(-time.Hour)
		}
	}
	if o.CA {
		template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	}
	for _, host := range o.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key, err := o.Key, error(nil)
	if key == nil {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
	}
	by := o.By
	if by == nil {
		by = &Certificate{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Certificate, key.Public(), by.Key)
	if err != nil {
		return nil, err
	}
	c, err := x509.ParseCertificate(der)
	return &Certificate{c, key}, err
}

// PEM returns the certificate, followed by its chain.
func (c *Certificate) PEM(chain ...*Certificate) []byte {
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	for _, other := range chain {
		text = append(text, other.PEM()...)
	}
	return text
}

// TLS returns the certificate for a server.
func (c *Certificate) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: c.Key}
}

// Pool returns a pool with the certificate as the only authority.
func (c *Certificate) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.Certificate)
	return pool
}

// Write writes the certificate with its chain, and its key, in PEM. It replaces each file
// atomically, the key last.
func (c *Certificate) Write(t testing.TB, certFile, keyFile string, chain ...*Certificate) {
	t.Helper()
	require.NoError(t, c.Save(certFile, keyFile, chain...))
}

// Save is Write for a program that is no test.
func (c *Certificate) Save(certFile, keyFile string, chain ...*Certificate) error {
	der, err := x509.MarshalPKCS8PrivateKey(c.Key)
	if err != nil {
		return err
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return errors.Join(replace(certFile, c.PEM(chain...)), replace(keyFile, key))
}

func replace(path string, text []byte) error {
	return errors.Join(os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path))
}
