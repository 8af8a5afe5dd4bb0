package gateway

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/origin"

	"github.com/stretchr/testify/require"
)

// FuzzAccessLog: whatever a client sends, an entry is one line, of printable ASCII with its quotes,
// or of JSON.
func FuzzAccessLog(f *testing.F) {
	f.Add([]byte("GET"), []byte("/a"), []byte("agent"), []byte(""))
	f.Add([]byte("G\" 200 0\n"), []byte("/\\\"\r\n"), []byte("\xff\xfe\u2028"), []byte("\x00\x7f"))
	f.Fuzz(func(t *testing.T, method, target, agent, line []byte) {
		e := entry{at: time.Unix(1700000000, 0).UTC(), remote: netip.MustParseAddr("192.0.2.1"), method: method,
			target: target, proto: []byte("HTTP/1.1"),
			agent: agent, referer: target, line: line, status: 200, bytes: 5, source: "local"}
		object := e.appendJSON(nil)
		require.Equal(t, 1, bytes.Count(object, []byte("\n")))
		var fields map[string]any
		require.NoError(t, json.Unmarshal(object, &fields), "%q", object)
		require.EqualValues(t, 200, fields["status"])
		require.Equal(t, "local", fields["source"])
		combined := e.appendCombined(nil)
		require.Equal(t, byte('\n'), combined[len(combined)-1])
		for _, c := range combined[:len(combined)-1] {
			require.True(t, ' ' <= c && c <= '~', "%q", combined)
		}
		require.Equal(t, 6, bytes.Count(combined, []byte(`"`)), "%q", combined)
	})
}

// FuzzRedirectTarget: whatever a client sends, the target of a redirect is one URL in printable
// ASCII, from which the next server reads the parameter redirect=1 and the file name of the
// request.
func FuzzRedirectTarget(f *testing.F) {
	f.Add("/a?redirect=0&x=%zz")
	f.Add("/?redirect")
	f.Fuzz(func(t *testing.T, raw string) {
		var first target
		if first.parse([]byte(raw)) != nil {
			return
		}
		targets := origin.Targets{Prefix: "/a"}
		redirected := string(targets.AppendRedirect(nil, fdfs.FileID{Logic: "b"}, first.query))
		for i := range len(redirected) {
			require.True(t, redirected[i] > ' ' && redirected[i] < 0x7f, "byte %#x", redirected[i])
		}
		var next target
		require.NoError(t, next.parse([]byte(redirected)), redirected)
		require.Equal(t, "/a/b", string(next.path))
		require.Equal(t, "1", string(next.params.redirect))
		require.Equal(t, string(first.params.filename), string(next.params.filename))
		if u, err := url.Parse("http://h" + redirected); err == nil {
			require.Empty(t, u.Fragment)
		}
	})
}
