// Package certificates holds the certificates of TLS listeners: it loads them, chooses one for each
// handshake, reads them again when their files change, and finds their faults.
//
//	set, err := certificates.Load([]certificates.Pair{{Cert: "a.crt", Key: "a.key"}, {Cert: "b.crt", Key: "b.key"}})
//	store := certificates.NewStore(slog.Default())
//	store.Use(set, &tls.Config{MinVersion: tls.VersionTLS12})
//	go store.Watch(stop)
//	ln = tls.NewListener(ln, store.Config())
//	for _, f := range set.Faults(time.Now(), nil) { ... }
//
// Session tickets outlive the process: their keys are made from the private key of the first
// certificate (ticketkeys.go).
package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"fastdfs-gateway/internal/i18n"
)

// Pair names the files of a certificate chain and of its private key, both in PEM.
type Pair struct{ Cert, Key string }

// Certificate is a chain with its key. It does not change.
type Certificate struct {
	Pair
	tls   tls.Certificate
	stamp stamp
}

// load reads the files of a pair. Its error names them.
func load(p Pair) (*Certificate, error) {
	stamp, err := stampOf(p) // before the files are read: Refresh then detects a change meanwhile
	if err != nil {
		return nil, p.fault(err)
	}
	pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, p.fault(err)
	}
	return &Certificate{Pair: p, tls: pair, stamp: stamp}, nil
}

// fault returns the error of a pair that cannot be used.
func (p Pair) fault(err error) error {
	return i18n.Errorf("cannot use %q with %q: %w", p.Cert, p.Key, err)
}

// Leaf returns the certificate itself, without its chain.
func (c *Certificate) Leaf() *x509.Certificate { return c.tls.Leaf }

// Expires returns the end of the validity of the certificate.
func (c *Certificate) Expires() time.Time { return c.tls.Leaf.NotAfter }

// Name returns the first of names, or the name of the file of a certificate without any.
func (c *Certificate) Name() string {
	if names := c.names(); len(names) > 0 {
		return names[0]
	}
	return strings.ToValidUTF8(filepath.Base(c.Cert), "?")
}

// names returns the names that clients compare with the host of a URL: DNS names in lower case,
// then addresses.
func (c *Certificate) names() []string {
	list := make([]string, 0, len(c.tls.Leaf.DNSNames)+len(c.tls.Leaf.IPAddresses))
	for _, name := range c.tls.Leaf.DNSNames {
		list = append(list, strings.ToLower(name))
	}
	for _, ip := range c.tls.Leaf.IPAddresses {
		list = append(list, ip.String())
	}
	return list
}

// maxFile bounds a file with a chain or a key, in bytes.
const maxFile = 1 << 20

// stamp distinguishes versions of the files of a pair. Symbolic links are followed, so the stamp
// changes when a link gets another target.
type stamp [2]fileStamp

type fileStamp struct {
	dev, inode uint64
	size       int64
	changed    syscall.Timespec // ctime, which chmod(2) changes too
}

func stampOf(p Pair) (s stamp, err error) {
	for i, name := range []string{p.Cert, p.Key} {
		info, err := os.Stat(name)
		if err != nil {
			return s, err
		}
		if !info.Mode().IsRegular() {
			return s, i18n.Errorf("%q is no regular file", name)
		}
		if info.Size() > maxFile {
			return s, i18n.Errorf("%q has more than %d bytes", name, maxFile)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return s, errors.New("BUG: stat(2) has another result")
		}
		s[i] = fileStamp{st.Dev, st.Ino, st.Size, st.Ctim}
	}
	return s, nil
}
