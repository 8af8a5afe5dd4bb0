package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// keyPair are the files of a certificate and its key.
type keyPair struct{ cert, key string }

// newKeyPairs writes self-signed certificates: with a key of P-256, and with one of RSA, 2048 bits.
func newKeyPairs(dir string) (p256, rsa2048 keyPair, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p256, rsa2048, err
	}
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return p256, rsa2048, err
	}
	p256, err = newKeyPair(dir, "p256", key)
	rsa2048, failed := newKeyPair(dir, "rsa", long)
	return p256, rsa2048, errors.Join(err, failed)
}

// newKeyPair writes a self-signed certificate.
func newKeyPair(dir, name string, key crypto.Signer) (keyPair, error) {
	pair := keyPair{filepath.Join(dir, name+"-cert.pem"), filepath.Join(dir, name+"-key.pem")}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return pair, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	write := func(name, kind string, der []byte) error {
		return os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	return pair, errors.Join(err, write(pair.cert, "CERTIFICATE", cert), write(pair.key, "PRIVATE KEY", private))
}
