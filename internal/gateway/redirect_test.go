package gateway

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMarkedTarget(t *testing.T) {
	for raw, want := range map[string]string{
		"/g/M00/a.jpg":                       "/g/M00/a.jpg?redirect=1",
		"/g/M00/a.jpg?":                      "/g/M00/a.jpg?redirect=1",
		"/g/M00/a.jpg?a=b&c":                 "/g/M00/a.jpg?a=b&c&redirect=1",
		"/g/M00/a.jpg?redirect=0&a=b":        "/g/M00/a.jpg?a=b&redirect=1",
		"/g/M00/a.jpg?re%64irect=0":          "/g/M00/a.jpg?redirect=1",
		"/g/M00/a.jpg?redirect=1&redirect=1": "/g/M00/a.jpg?redirect=1",
		"http://gw.test:81/g/a?x":            "/g/a?x&redirect=1",
		"//g//%2e/a?x=%0d%0a":                "//g//%2e/a?x=%0d%0a&redirect=1",
		"/g/\xe4?n=\xff\"<>":                 "/g/%E4?n=%FF%22%3C%3E&redirect=1",
	} {
		require.Equal(t, want, string(appendMarked(nil, []byte(raw))), raw)
	}
	long := "/g/a?x=" + strings.Repeat("y", 4000)
	require.Equal(t, long+"&redirect=1", string(appendMarked(nil, []byte(long))))
}

// FuzzMarkedTarget: whatever comes, it is one URL in printable ASCII, marked once, and the mark is what the next server reads.
func FuzzMarkedTarget(f *testing.F) {
	f.Add("/a?redirect=0&x=%zz")
	f.Add("http://x/?redirect")
	f.Fuzz(func(t *testing.T, raw string) {
		var first target
		if first.parse([]byte(raw)) != nil {
			return
		}
		marked := string(appendMarked(nil, []byte(raw)))
		for i := range len(marked) {
			require.True(t, marked[i] > ' ' && marked[i] < 0x7f, "byte %#x", marked[i])
		}
		var next target
		require.NoError(t, next.parse([]byte(marked)), marked)
		require.Equal(t, string(first.path), string(next.path))
		require.Equal(t, "1", string(next.params.redirect))
		require.Equal(t, string(first.params.filename), string(next.params.filename))
		if u, err := url.Parse("http://h" + marked); err == nil {
			require.Empty(t, u.Fragment)
		}
	})
}
