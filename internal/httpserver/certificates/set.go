package certificates

import (
	"crypto/tls"
	"errors"
	"slices"
	"strings"
)

// Set is the certificates of a configuration, in its order. It does not change.
type Set struct {
	list     []*Certificate
	byName   map[string][]*tls.Certificate // by names in lower case, such as "a.example" and "*.example"
	defaults []*tls.Certificate            // the first one, and others for one of its names
}

// Load reads all pairs. The error names the files of each pair that cannot be used.
func Load(pairs []Pair) (*Set, error) {
	var list []*Certificate
	var errs []error
	for _, p := range pairs {
		c, err := load(p)
		list, errs = append(list, c), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return newSet(list), nil
}

func newSet(list []*Certificate) *Set {
	s := &Set{list: list, byName: map[string][]*tls.Certificate{}}
	for i, c := range list {
		names := c.names()
		for _, name := range names {
			s.byName[name] = append(s.byName[name], &c.tls)
		}
		if i == 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(list[0].names(), n) }) {
			s.defaults = append(s.defaults, &c.tls)
		}
	}
	return s
}

// Certificates returns the certificates in the order of the configuration; none for a nil Set.
func (s *Set) Certificates() []*Certificate {
	if s == nil {
		return nil
	}
	return s.list
}

// Choose returns the certificate for a handshake, for tls.Config.GetCertificate. Of the
// certificates for the name that the client sends, or else for the wildcard of its domain
// (*.example), it is the first one whose kind of key the client can use. A client that sends no
// name, or an unknown one, gets the first certificate of all, or another one for a name of the
// first.
func (s *Set) Choose(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if len(s.list) == 1 {
		return s.defaults[0], nil
	}
	name := strings.ToLower(hello.ServerName)
	_, domain, _ := strings.Cut(name, ".")
	exact, wildcard := s.byName[name], s.byName["*."+domain]
	nameless := *hello // SupportsCertificate compares names in its own way
	nameless.ServerName = ""
	for _, list := range [...][]*tls.Certificate{exact, wildcard} {
		if c := usable(list, &nameless); c != nil {
			return c, nil
		}
	}
	for _, list := range [...][]*tls.Certificate{exact, wildcard} {
		if len(list) > 0 {
			return list[0], nil // the handshake fails with the reason
		}
	}
	if c := usable(s.defaults, &nameless); c != nil {
		return c, nil
	}
	return s.defaults[0], nil
}

// usable returns the first certificate of a list that the client can use; nil = none.
func usable(list []*tls.Certificate, hello *tls.ClientHelloInfo) *tls.Certificate {
	for _, c := range list {
		if hello.SupportsCertificate(c) == nil {
			return c
		}
	}
	return nil
}
