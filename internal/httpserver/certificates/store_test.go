package certificates

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRefresh: a pair is replaced as soon as both files match, however they are written. Until then
// there is one warning. Other pairs, and files that have not changed, stay.
func TestRefresh(t *testing.T) {
	ca, dir := newAuthority(t, "ca", nil), t.TempDir()
	pair := issue(t, ca, dir, "a", order{names: []string{"a.example"}})
	other := issue(t, ca, dir, "b", order{names: []string{"b.example"}})
	set, err := Load([]Pair{pair, other})
	require.NoError(t, err)
	var log bytes.Buffer
	store := NewStore(slog.New(slog.NewTextHandler(&log, nil)))
	store.Refresh(time.Now()) // nothing is in use yet
	store.Use(set, &tls.Config{MinVersion: tls.VersionTLS13})
	served := func() string {
		state, err := shake(t, store.Config(), &tls.Config{ServerName: "a.example", InsecureSkipVerify: true})
		require.NoError(t, err)
		return string(state.PeerCertificates[0].Raw)
	}
	first := served()
	store.Refresh(time.Now())
	require.Same(t, set, store.Set(), "nothing has changed")

	replace := func(to Pair, parts ...string) {
		for _, part := range parts {
			from, name := to.Cert, pair.Cert
			if part == "key" {
				from, name = to.Key, pair.Key
			}
			require.NoError(t, os.Rename(from, name))
		}
	}
	renewed := issue(t, ca, dir, "new", order{names: []string{"a.example"}})
	replace(renewed, "cert")
	for range 3 {
		store.Refresh(time.Now())
	}
	require.Equal(t, first, served())
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	require.Contains(t, log.String(), "private key does not match")
	replace(renewed, "key")
	store.Refresh(time.Now())
	second := served()
	require.NotEqual(t, first, second)
	require.Equal(t, 1, strings.Count(log.String(), "certificate read again"), log.String())
	require.Same(t, set.list[1], store.Set().list[1])

	require.NoError(t, os.Remove(pair.Key))
	store.Refresh(time.Now())
	require.Equal(t, second, served())
	require.Equal(t, 2, strings.Count(log.String(), "level=WARN"), log.String())

	live := filepath.Join(dir, "live")
	require.NoError(t, os.Remove(pair.Cert))
	for i, name := range []string{"one", "two"} { // as certbot does
		p := issue(t, ca, dir, name, order{names: []string{"a.example"}})
		for from, to := range map[string]string{p.Cert: pair.Cert, p.Key: pair.Key} {
			require.NoError(t, os.Symlink(from, live))
			require.NoError(t, os.Rename(live, to))
		}
		store.Refresh(time.Now())
		leaf, err := x509.ParseCertificate([]byte(served()))
		require.NoError(t, err)
		require.Equal(t, name, leaf.Subject.CommonName, i)
	}
	store.Use(nil, nil)
	store.Refresh(time.Now())
	require.Empty(t, store.Set().Certificates())
	_, err = shake(t, store.Config(), &tls.Config{InsecureSkipVerify: true})
	require.Error(t, err)
}

// TestTickets: another process with the same first certificate resumes a session on the same and
// the next day, with TLS 1.2 and 1.3. With another certificate, or later, the session is a new one.
func TestTickets(t *testing.T) {
	ca, dir := newAuthority(t, "ca", nil), t.TempDir()
	load := func(p Pair) *Set {
		set, err := Load([]Pair{p})
		require.NoError(t, err)
		return set
	}
	first := issue(t, ca, dir, "a", order{names: []string{"a.example"}})
	renewed := issue(t, ca, dir, "b", order{names: []string{"a.example"}})
	now := time.Now()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, c := range []struct {
			pair   Pair
			later  time.Duration
			resume bool
		}{
			{first, 0, true},
			{first, 24 * time.Hour, true},
			{first, -24 * time.Hour, true},
			{first, 72 * time.Hour, false},
			{renewed, 0, false},
		} {
			client := &tls.Config{ServerName: "a.example", InsecureSkipVerify: true, MaxVersion: version,
				ClientSessionCache: tls.NewLRUClientSessionCache(1)}
			before, after := NewStore(slog.Default()), NewStore(slog.Default())
			before.Use(load(first), &tls.Config{MinVersion: tls.VersionTLS12})
			after.Use(load(c.pair), &tls.Config{MinVersion: tls.VersionTLS12})
			after.Refresh(now.Add(c.later))
			state, err := shake(t, before.Config(), client)
			require.NoError(t, err)
			require.False(t, state.DidResume)
			state, err = shake(t, after.Config(), client)
			require.NoError(t, err)
			require.Equal(t, c.resume, state.DidResume, "%x %+v", version, c)
		}
	}
	for _, key := range []order{{}, {key: rsaKey()}} {
		require.Len(t, load(issue(t, ca, dir, "k", key)).ticketKeys(now), 3)
	}
}
