package main

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"path/filepath"

	"fastdfs-gateway/internal/testing/certtest"
)

// keyPair are the files of a certificate and its key.
type keyPair struct{ cert, key string }

// newKeyPairs writes self-signed certificates: with a key of P-256, and with one of RSA, 2048 bits.
func newKeyPairs(dir string) (p256, rsa2048 keyPair, err error) {
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return p256, rsa2048, err
	}
	p256, err = newKeyPair(dir, "p256", nil)
	rsa2048, failed := newKeyPair(dir, "rsa", long)
	return p256, rsa2048, errors.Join(err, failed)
}

// newKeyPair writes a self-signed certificate; nil = with a new key of P-256.
func newKeyPair(dir, name string, key crypto.Signer) (keyPair, error) {
	pair := keyPair{filepath.Join(dir, name+"-cert.pem"), filepath.Join(dir, name+"-key.pem")}
	c, err := certtest.Make(certtest.Order{Hosts: []string{"bench"}, Key: key})
	if err != nil {
		return pair, err
	}
	return pair, c.Save(pair.cert, pair.key)
}
