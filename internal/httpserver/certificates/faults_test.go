package certificates

import (
	"crypto/x509"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/certtest"

	"github.com/stretchr/testify/require"
)

// TestFaults: Faults reports the properties of a certificate that clients reject, and nothing for a
// good one.
func TestFaults(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	root := newAuthority(t, "root", nil)
	middle, unknown := newAuthority(t, "middle", root), newAuthority(t, "unknown", nil)
	known := x509.NewCertPool()
	known.AddCert(root.Certificate)
	name := []string{"a.example"}
	day := 24 * time.Hour
	for what, c := range map[string]struct {
		by    *certtest.Certificate
		o     order
		ended bool
		want  string // empty = no fault
	}{
		"by a root":       {by: root, o: order{names: name}},
		"whole chain":     {by: middle, o: order{names: name, chain: []*certtest.Certificate{middle}}},
		"chain with root": {by: middle, o: order{names: name, chain: []*certtest.Certificate{middle, root}}},
		"private root":    {by: unknown, o: order{names: name, chain: []*certtest.Certificate{unknown}}},
		"an address":      {by: root, o: order{names: []string{"10.0.0.1"}}},
		"no chain": {by: middle, o: order{names: name},
			want: "no certificate of the issuer (CN=middle)"},
		"another chain": {by: middle, o: order{names: name, chain: []*certtest.Certificate{unknown}},
			want: "out of order"},
		"chain upside down": {by: middle, o: order{names: name, chain: []*certtest.Certificate{root, middle}},
			want: "out of order"},
		"ended": {by: root, o: order{names: name, begin: now.Add(-2 * day), end: now.Add(-day)},
			ended: true,
			want:  "ended at"},
		"ends soon": {by: root, o: order{names: name, end: now.Add(13*day + time.Hour)},
			want: "in less than 14 days"},
		"ends not so soon": {by: root, o: order{names: name, end: now.Add(15 * day)}},
		"not valid yet": {by: root, o: order{names: name, begin: now.Add(day)},
			want: "not valid before"},
		"no name": {by: root, want: "no subject alternative name"},
		"soon, without chain": {by: middle, o: order{names: name, end: now.Add(day + time.Hour)},
			want: "in less than 2 days"},
	} {
		set, err := Load([]Pair{issue(t, c.by, dir, "c", c.o)})
		require.NoError(t, err)
		faults := set.Faults(now, known)
		if c.want == "" {
			require.Empty(t, faults, what)
			continue
		}
		require.NotEmpty(t, faults, what)
		require.Contains(t, faults[0].Text.String(), c.want, what)
		require.Equal(t, c.ended, faults[0].Ended, what)
	}
	set, err := Load([]Pair{issue(t, nil, dir, "self", order{names: name})})
	require.NoError(t, err)
	require.Empty(t, set.Faults(now, known), "self-signed")
}

// TestUnused: a certificate is never used if earlier ones with the same kind of key have all of its
// names, or if it is for addresses only.
func TestUnused(t *testing.T) {
	ca, dir := newAuthority(t, "ca", nil), t.TempDir()
	known := x509.NewCertPool()
	known.AddCert(ca.Certificate)
	a, b := []string{"a.example"}, []string{"b.example"}
	set, err := Load([]Pair{
		issue(t, ca, dir, "1", order{names: a}),
		issue(t, ca, dir, "2", order{names: a, key: rsaKey()}),
		issue(t, ca, dir, "3", order{names: b}),
		issue(t, ca, dir, "4", order{names: append(a, "b.example")}),
		issue(t, ca, dir, "5", order{names: append(a, "c.example")}),
		issue(t, ca, dir, "6", order{names: []string{"10.0.0.1", "::1"}}),
		issue(t, ca, dir, "7", order{names: []string{"10.0.0.1", "d.example"}}),
	})
	require.NoError(t, err)
	faults := set.Faults(time.Now(), known)
	require.Len(t, faults, 2)
	require.Contains(t, faults[0].Text.String(), `4.crt" is never used`)
	require.Contains(t, faults[1].Text.String(), `6.crt" is never used: it is for addresses`)
}
