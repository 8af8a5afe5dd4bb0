package gateway

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAppendMasked(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"/a":                             "/a",
		"/token=x":                       "/token=x",
		"/a?token":                       "/a?token",
		"/a?ts=1&to=2&tokens=3&xtoken=4": "/a?ts=1&to=2&tokens=3&xtoken=4",
		"/a?token=secret&ts=1":           "/a?token=***&ts=1",
		"/a?token=":                      "/a?token=***",
		"/a?ts=1&token=se=cr?et":         "/a?ts=1&token=***",
		"/a?token=one&x=y&token=two&b":   "/a?token=***&x=y&token=***&b",
		"/a?%74oken=secret&ts=1":         "/a?%74oken=***&ts=1",
		"/a?%74%6f%6B%65%6e=secret":      "/a?%74%6f%6B%65%6e=***",
		"http://h/a?token=secret#part":   "http://h/a?token=***#part",
		"GET /a?token=secret HTTP/1.1":   "GET /a?token=*** HTTP/1.1",
		"/a?b?token=x&token=secret":      "/a?b?token=x&token=***", // the name is "b?token"
	} {
		grown, got := appendMasked([]byte("before"), []byte(text))
		require.Equal(t, want, string(got), text)
		require.True(t, bytes.HasPrefix(grown, []byte("before")))
	}
}

// FuzzMasked: the parameter that parseQuery reads as the token is always masked.
func FuzzMasked(f *testing.F) {
	f.Add("/a?token=0123456789abcdef0123456789abcdef&ts=1")
	f.Add("/a?x=1&%74oken=secret1&token=secret2")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "# ") { // not in a target
			return
		}
		_, shown := appendMasked(nil, []byte(text))
		var was, is target
		_, query, _ := strings.Cut(text, "?")
		was.query = []byte(query)
		was.parseQuery()
		_, query, _ = strings.Cut(string(shown), "?")
		is.query = []byte(query)
		is.parseQuery()
		if len(was.params.token) > 0 {
			require.Equal(t, masked, string(is.params.token))
		}
		require.Equal(t, was.params.ts, is.params.ts)
		require.Equal(t, was.params.filename, is.params.filename)
	})
}
