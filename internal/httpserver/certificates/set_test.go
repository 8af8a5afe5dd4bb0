package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChoose: the certificate is chosen by exact name, then by domain, and by the kind of key that
// the client accepts. Without a match it is the first one.
func TestChoose(t *testing.T) {
	ca, dir := newAuthority(t, "ca", nil), t.TempDir()
	pairs := []Pair{
		issue(t, ca, dir, "first", order{names: []string{"a.example", "10.0.0.1"}}),
		issue(t, ca, dir, "firstRSA", order{names: []string{"A.example", "rsa.example"}, key: rsaKey()}),
		issue(t, ca, dir, "wild", order{names: []string{"*.wild.example"}}),
		issue(t, ca, dir, "exact", order{names: []string{"b.wild.example"}}),
		issue(t, ca, dir, "exactRSA", order{names: []string{"b.wild.example"}, key: rsaKey()}),
		issue(t, ca, dir, "nameless", order{}),
	}
	set, err := Load(pairs)
	require.NoError(t, err)
	server := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: set.Choose}
	rsaOnly := []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
	for _, c := range []struct {
		name    string
		ciphers []uint16
		want    string
	}{
		{"a.example", nil, "first"},
		{"A.EXAMPLE", nil, "first"},
		{"", nil, "first"},
		{"other.example", nil, "first"},
		{"wild.example", nil, "first"},
		{"a.b.wild.example", nil, "first"},
		{"a.example", rsaOnly, "firstRSA"},
		{"", rsaOnly, "firstRSA"},
		{"other.example", rsaOnly, "firstRSA"},
		{"rsa.example", nil, "firstRSA"},
		{"a.wild.example", nil, "wild"},
		{"b.wild.example", nil, "exact"},
		{"B.WILD.example", nil, "exact"},
		{"b.wild.example", rsaOnly, "exactRSA"},
		{"a.wild.example", rsaOnly, ""},
	} {
		client := &tls.Config{ServerName: c.name, InsecureSkipVerify: true}
		if c.ciphers != nil {
			client.CipherSuites, client.MaxVersion = c.ciphers, tls.VersionTLS12
		}
		state, err := shake(t, server, client)
		if c.want == "" {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err, "%+v", c)
		require.Equal(t, c.want, state.PeerCertificates[0].Subject.CommonName, "%+v", c)
	}
	alone, err := Load(pairs[:1])
	require.NoError(t, err)
	server = &tls.Config{GetCertificate: alone.Choose}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	_, err = shake(t, server, &tls.Config{ServerName: "a.example", RootCAs: roots})
	require.NoError(t, err)
	_, err = shake(t, server, &tls.Config{ServerName: "b.example", RootCAs: roots})
	require.ErrorContains(t, err, "not b.example")
}

// TestLoadNamesBadPairs: the error of Load names all pairs that cannot be used.
func TestLoadNamesBadPairs(t *testing.T) {
	ca, dir := newAuthority(t, "ca", nil), t.TempDir()
	a, b := issue(t, ca, dir, "a", order{}), issue(t, ca, dir, "b", order{})
	_, err := Load([]Pair{a, {a.Cert, b.Key}, {"/nowhere", b.Key}})
	require.ErrorContains(t, err, a.Cert+`" with "`+b.Key+`": tls: private key does not match`)
	require.ErrorContains(t, err, `"/nowhere" with`)
}
