package gateway

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// logged returns the line that an access log writes about a request.
func logged(t *testing.T, format string, e entry) string {
	t.Helper()
	var out strings.Builder
	log, err := NewAccessLog(&out, AccessLogOptions{Format: format})
	require.NoError(t, err)
	log.write(e)
	return out.String()
}

// TestAccessLogEscapes: characters that control a terminal or a viewer are escaped in a line.
func TestAccessLogEscapes(t *testing.T) {
	unsafe := "\x00\x1b\x7f\u0080\u009b\u009f\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"
	e := entry{method: []byte("GET"), target: []byte("/a"), proto: []byte("HTTP/1.1"), agent: []byte(unsafe + "é漢"),
		referer: []byte("\xff")}
	for _, format := range []string{"combined", "json"} {
		line := logged(t, format, e)
		for _, r := range unsafe {
			require.NotContains(t, line, string(r), "%s: %U", format, r)
		}
	}
	var got map[string]any
	line := logged(t, "json", e)
	require.NoError(t, json.Unmarshal([]byte(line), &got), line)
	require.Equal(t, unsafe+"é漢", got["user_agent"], "nothing is lost")
	require.Contains(t, line, "é漢")
	require.Contains(t, line, `\u001B`)
	require.Contains(t, line, `\u2028`)
}

// TestAccessLogIsCut: the length of a line is bounded, whatever a client sends.
func TestAccessLogIsCut(t *testing.T) {
	long := []byte("/" + strings.Repeat("x", 7000))
	e := entry{method: []byte("GET"), target: long, proto: []byte("HTTP/1.1"), agent: long, referer: long}
	for _, format := range []string{"combined", "json"} {
		line := logged(t, format, e)
		require.Less(t, len(line), 3*maxLogText+500)
		require.Equal(t, 3, strings.Count(line, "x..."))
		require.True(t, utf8.ValidString(line))
	}
	require.Equal(t, strings.Repeat("x", 7000), string(long[1:]), "the request is as it was")
	e = entry{method: []byte("GET"), target: []byte("/a?token=" + strings.Repeat("5", 7000)), proto: []byte("HTTP/1.1")}
	require.NotContains(t, logged(t, "json", e), "55555555")
}

// TestRequestID: $request_id has one value in a line, and another one in each line.
func TestRequestID(t *testing.T) {
	var out strings.Builder
	log, err := NewAccessLog(&out, AccessLogOptions{Format: "$request_id $request_id"})
	require.NoError(t, err)
	for range 2 {
		log.write(entry{})
	}
	id := strings.Fields(out.String())
	require.Len(t, id, 4)
	require.Equal(t, id[0], id[1])
	require.Equal(t, id[2], id[3])
	require.NotEqual(t, id[0], id[2])
}
