package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAppendHTTPS: the URL has the host and the target of the request. A request without a host, or
// with a target that is no path, is rejected.
func TestAppendHTTPS(t *testing.T) {
	for _, c := range []struct {
		host   string
		port   int
		target string
		want   string // empty = rejected
	}{
		{"a.example", 443, "/x", "https://a.example/x"},
		{"A.Example:8080", 443, "/x?y=%20&z", "https://A.Example/x?y=%20&z"},
		{"a.example:", 8443, "/", "https://a.example:8443/"},
		{"10.0.0.1:80", 8443, "//evil.example/..", "https://10.0.0.1:8443//evil.example/.."},
		{"[::1]:80", 443, "/x", "https://[::1]/x"},
		{"[::1]", 444, "/x#part", "https://[::1]:444/x"},
		{"a.example", 443, "http://b.example/x?y", ""},
		{"", 443, "/x", ""},
		{"a.example", 443, "*", ""},
		{"a.example", 443, "", ""},
	} {
		got, ok := appendHTTPS(nil, []byte(c.host), c.port, []byte(c.target))
		require.Equal(t, c.want, string(got), "%q %q", c.host, c.target)
		require.Equal(t, c.want != "", ok)
	}
}
