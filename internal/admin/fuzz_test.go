package admin

import (
	"bytes"
	"net/netip"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzAdminHost: a Host field that is accepted names no other site in a browser.
func FuzzAdminHost(f *testing.F) {
	for _, seed := range []string{"", "localhost:8889", "127.0.0.1", "[::1]:8889", "gateway.example.",
		"evil.example", "[evil.example]", "127.0.0.1.evil.example", "localhost.evil:1", "[::1%25eth0]:1",
		"1::evil"} {
		f.Add(seed)
	}
	access := Access{Hosts: []string{"gateway.example"}}
	f.Fuzz(func(t *testing.T, host string) {
		if !access.allowsHost(host) {
			return
		}
		u, err := url.Parse("http://" + host + "/")
		if err != nil || u.User != nil || u.Host != host {
			return // no browser sends such a Host field
		}
		name := bytes.TrimSuffix(bytes.ToLower([]byte(u.Hostname())), []byte("."))
		if _, err := netip.ParseAddr(string(name)); err == nil {
			return
		}
		require.Contains(t, []string{"", "localhost", "gateway.example"}, string(name), "%q", host)
	})
}
