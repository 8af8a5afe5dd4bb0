package certificates

import (
	"bytes"
	"crypto/x509"
	"net"
	"slices"
	"time"

	"fastdfs-gateway/internal/i18n"
)

// Soon is the time before the end of a certificate in which its renewal is due.
const Soon = 14 * 24 * time.Hour

// Fault is the reason for which clients reject a certificate or will soon do so, or for which no
// handshake uses it.
type Fault struct {
	Ended     bool // the validity of the certificate has ended
	Text, Fix i18n.Text
}

// Faults returns the faults of all certificates at the time now. The issuer of a chain is looked
// for in roots; nil = the roots of the system.
func (s *Set) Faults(now time.Time, roots *x509.CertPool) (list []Fault) {
	for i, c := range s.list {
		for _, find := range []func() *Fault{
			func() *Fault { return c.timeFault(now) },
			func() *Fault { return c.chainFault(now, roots) },
			c.nameFault,
			func() *Fault { return s.unusedFault(i) },
		} {
			if f := find(); f != nil {
				list = append(list, *f)
			}
		}
	}
	return list
}

// timeFault finds a certificate that has ended, ends before Soon has passed, or is not valid yet.
func (c *Certificate) timeFault(now time.Time) *Fault {
	leaf := c.Leaf()
	end := leaf.NotAfter.UTC().Format(time.RFC3339)
	switch left := leaf.NotAfter.Sub(now); {
	case left < 0:
		return &Fault{true, i18n.Sprintf("the certificate %q ended at %s", c.Cert, end), i18n.Plain("renew it")}
	case left < Soon:
		return &Fault{false, i18n.Sprintf("the certificate %q ends at %s, in less than %d days", c.Cert, end,
			left/(24*time.Hour)+1), i18n.Plain("renew it; the gateway reads it again by itself")}
	case leaf.NotBefore.After(now):
		return &Fault{false, i18n.Sprintf("the certificate %q is not valid before %s", c.Cert,
			leaf.NotBefore.UTC().Format(time.RFC3339)), i18n.Plain("wait, or set the clock of this host")}
	}
	return nil
}

// chainFault finds a chain that clients cannot follow to a root.
func (c *Certificate) chainFault(now time.Time, roots *x509.CertPool) *Fault {
	chain, err := c.chain()
	if err != nil {
		return &Fault{false, i18n.Sprintf("the chain in %q cannot be read: %v", c.Cert, err), i18n.Plain(chainFix)}
	}
	for i := range len(chain) - 1 {
		if !issued(chain[i+1], chain[i]) {
			return &Fault{false, i18n.Sprintf("the chain in %q is incomplete or out of order: certificate %d (%s) "+
				"was not issued by the next one (%s)", c.Cert, i+1, chain[i].Subject, chain[i+1].Subject),
				i18n.Plain(chainFix)}
		}
	}
	leaf := chain[0]
	if len(chain) > 1 || issued(leaf, leaf) {
		return nil
	}
	if roots == nil {
		if roots, err = x509.SystemCertPool(); err != nil {
			return nil // without the roots of this host, the chain cannot be checked
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: within(leaf, now)}); err != nil {
		return &Fault{false, i18n.Sprintf("the chain in %q is incomplete: it has no certificate of the issuer (%s), "+
			"which is no root that this host knows", c.Cert, leaf.Issuer), i18n.Plain(chainFix)}
	}
	return nil
}

const chainFix = "write the certificate first, then each issuer up to the root, as in certbot's fullchain.pem"

// within returns a time in the validity of a certificate, now if possible: timeFault reports a time
// outside of it.
func within(leaf *x509.Certificate, now time.Time) time.Time {
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return leaf.NotBefore
	}
	return now
}

// chain returns the certificates of the file, the leaf first.
func (c *Certificate) chain() (list []*x509.Certificate, err error) {
	for _, der := range c.tls.Certificate {
		one, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

// issued reports whether the subject of issuer has signed c.
func issued(issuer, c *x509.Certificate) bool {
	return bytes.Equal(issuer.RawSubject, c.RawIssuer) &&
		issuer.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}

// nameFault finds a certificate without names.
func (c *Certificate) nameFault() *Fault {
	if len(c.names()) > 0 {
		return nil
	}
	return &Fault{false, i18n.Sprintf("the certificate %q is for no host: it has no subject alternative name", c.Cert),
		i18n.Plain("make one with the names of the URLs as subject alternative names: clients ignore the common name")}
}

// unusedFault finds a certificate that no handshake uses: earlier ones with the same kind of key
// have all of its names, or it is for addresses only, which clients do not send (RFC 6066 section
// 3).
func (s *Set) unusedFault(i int) *Fault {
	c := s.list[i]
	if i == 0 {
		return nil
	}
	first := s.list[0].names()
	isAddress := func(name string) bool { return net.ParseIP(name) != nil && !slices.Contains(first, name) }
	if names := c.names(); len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return !isAddress(n) }) {
		return &Fault{false, i18n.Sprintf("the certificate %q is never used: it is for addresses only, "+
			"and by address clients get the first certificate", c.Cert),
			i18n.Plain("remove it, or write it in front of them")}
	}
	covers := func(name string) bool {
		return slices.ContainsFunc(s.list[:i], func(e *Certificate) bool {
			return e.Leaf().PublicKeyAlgorithm == c.Leaf().PublicKeyAlgorithm && slices.Contains(e.names(), name)
		})
	}
	for _, name := range c.names() {
		if !covers(name) {
			return nil
		}
	}
	return &Fault{false,
		i18n.Sprintf("the certificate %q is never used: those before it have all of its names", c.Cert),
		i18n.Plain("remove it, or write it in front of them")}
}
