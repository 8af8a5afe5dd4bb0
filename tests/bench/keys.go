package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

// newKeyPair writes a self-signed certificate with a key of P-256.
func newKeyPair(dir string) (keyPair, error) {
	pair := keyPair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, err
	}
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
