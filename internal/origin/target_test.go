package origin

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRedirectedQuery(t *testing.T) {
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
		require.Equal(t, want, string(appendRedirected(nil, []byte(query))), query)
	}
	long := "x=" + strings.Repeat("y", 4000)
	require.Equal(t, long+"&redirect=1", string(appendRedirected(nil, []byte(long))))
}
