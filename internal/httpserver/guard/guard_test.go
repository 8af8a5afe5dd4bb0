package guard

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const probe = "GET /probe HTTP/1.1\r\nHost: probe\r\n\r\n"

// methodOf returns GET or HEAD for the request of the i-th response: a response to HEAD has no
// body.
func methodOf(in string, i int) string {
	in = strings.TrimLeft(in, "\r\n")
	if i == 0 && strings.HasPrefix(in, "HEAD ") || i == 1 && strings.Contains(in, "\r\n\r\nHEAD ") {
		return "HEAD"
	}
	return "GET"
}

// TestRequests: each case is sent on a new connection with a second request right behind it, which
// is served exactly if the connection is kept.
func TestRequests(t *testing.T) {
	s := startServer(t, Options{})
	for _, tc := range allCases() {
		t.Run(tc.name, func(t *testing.T) {
			c := s.dial(t)
			c.send(tc.in + probe)
			for i, status := range tc.status {
				resp := c.receive(methodOf(tc.in, i))
				require.Equal(t, status, resp.StatusCode)
				if i == 0 && tc.target != "" {
					require.Equal(t, tc.target, resp.Header.Get("X-Target"))
				}
				if i == len(tc.status)-1 {
					require.Equal(t, !tc.kept, resp.Close, "Connection: close in the response")
				}
			}
			if tc.kept {
				require.Equal(t, "/probe", c.receive("GET").Header.Get("X-Target"))
				c.send(strings.Replace(probe, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
				require.Equal(t, "/probe", c.receive("GET").Header.Get("X-Target"))
			}
			c.requireEOF()
			require.NoError(t, c.Close())
		})
	}
}
