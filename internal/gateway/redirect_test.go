package gateway

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMarkedQuery(t *testing.T) {
	for query, want := range map[string]string{
		"":                      "redirect=1",
		"a=b&c":                 "a=b&c&redirect=1",
		"redirect=0&a=b":        "a=b&redirect=1",
		"re%64irect=0":          "redirect=1",
		"redirect=1&redirect=1": "redirect=1",
		"x=%0d%0a":              "x=%0d%0a&redirect=1",
		"n=\xff\"<>":            "n=%FF%22%3C%3E&redirect=1",
		"a=b#c":                 "a=b%23c&redirect=1",
	} {
		require.Equal(t, want, string(appendMarked(nil, []byte(query))), query)
	}
	long := "x=" + strings.Repeat("y", 4000)
	require.Equal(t, long+"&redirect=1", string(appendMarked(nil, []byte(long))))
}

// FuzzMarkedQuery: whatever comes, it is one URL in printable ASCII, marked once, and the mark is
// what the next server reads.
func FuzzMarkedQuery(f *testing.F) {
	f.Add("/a?redirect=0&x=%zz")
	f.Add("http://x/?redirect")
	f.Fuzz(func(t *testing.T, raw string) {
		var first target
		if first.parse([]byte(raw)) != nil {
			return
		}
		marked := string(appendMarked([]byte("/a?"), first.query))
		for i := range len(marked) {
			require.True(t, marked[i] > ' ' && marked[i] < 0x7f, "byte %#x", marked[i])
		}
		var next target
		require.NoError(t, next.parse([]byte(marked)), marked)
		require.Equal(t, "/a", string(next.path))
		require.Equal(t, "1", string(next.params.redirect))
		require.Equal(t, string(first.params.filename), string(next.params.filename))
		if u, err := url.Parse("http://h" + marked); err == nil {
			require.Empty(t, u.Fragment)
		}
	})
}
