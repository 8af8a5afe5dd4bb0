package guard

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckHTTP2: the limits and rules of a Conn, for requests that net/http has decoded.
func TestCheckHTTP2(t *testing.T) {
	long, fields := strings.Repeat("x", maxTarget), http.Header{}
	big, other := http.Header{"Cookie": {strings.Repeat("x", maxHead)}}, http.Header{"Expect": {"x"}}
	for range maxFields + 1 {
		fields.Add("X", "y")
	}
	for name, tt := range map[string]struct {
		method, target, host string
		header               http.Header
		length               int64
		status               int // 0 = passed
		want                 string
	}{
		"path":                  {method: "GET", target: "/a%20b?c", host: "h", want: "/a%20b?c"},
		"fragment":              {method: "GET", target: "/a#b", host: "h", want: "/a"},
		"slashes":               {method: "GET", target: "///a//b", host: "h:1", want: "/a//b"},
		"OPTIONS *":             {method: "OPTIONS", target: "*", host: "h", want: "*"},
		"GET *":                 {method: "GET", target: "*", host: "h", status: 400},
		"CONNECT":               {method: "CONNECT", target: "h:1", host: "h:1", want: "h:1"},
		"absolute":              {method: "GET", target: "http://h/a", host: "h", status: 400},
		"no path":               {method: "GET", target: "a", host: "h", status: 400},
		"blank":                 {method: "GET", target: "/a b", host: "h", status: 400},
		"control character":     {method: "GET", target: "/a\x01", host: "h", status: 400},
		"method of two words":   {method: "GET /x", target: "/a", host: "h", status: 400},
		"method with a bracket": {method: "GE(T", target: "/a", host: "h", status: 400},
		"long method":           {method: strings.Repeat("M", maxMethod+1), target: "/", host: "h", status: 501},
		"longest target":        {method: "GET", target: "/" + long[1:], host: "h", want: "/" + long[1:]},
		"long target":           {method: "GET", target: "/" + long, host: "h", status: 414},
		"no host":               {method: "GET", target: "/", status: 400},
		"bad host":              {method: "GET", target: "/", host: "a,b", status: 400},
		"same host":             {method: "GET", target: "/", host: "a", header: hosts("A"), want: "/"},
		"other host":            {method: "GET", target: "/", host: "a", header: hosts("b"), status: 400},
		"two hosts":             {method: "GET", target: "/", host: "a", header: hosts("a", "b"), status: 400},
		"fields":                {method: "GET", target: "/", host: "h", header: fields, status: 431},
		"size":                  {method: "GET", target: "/", host: "h", header: big, status: 431},
		"expectation":           {method: "GET", target: "/", host: "h", header: other, status: 417},
		"body":                  {method: "GET", target: "/", host: "h", length: maxDiscard, want: "/"},
		"large body":            {method: "GET", target: "/", host: "h", length: maxDiscard + 1, status: 413},
	} {
		r := &http.Request{Method: tt.method, RequestURI: tt.target, Host: tt.host, Header: tt.header,
			ContentLength: tt.length}
		_, target, rejected := CheckHTTP2(nil, r)
		if tt.status == 0 {
			require.Nil(t, rejected, name)
			require.Equal(t, tt.want, string(target), name)
			continue
		}
		require.NotNil(t, rejected, name)
		require.Equal(t, tt.status, rejected.Status, name)
		require.True(t, strings.HasPrefix(tt.method+" "+tt.target+" HTTP/2.0", string(rejected.Line)), name)
	}
}

func hosts(list ...string) http.Header { return http.Header{"Host": list} }

// TestDiscardHTTP2: bodies up to 64 KiB are read, and no more of larger ones.
func TestDiscardHTTP2(t *testing.T) {
	require.Nil(t, DiscardHTTP2(strings.NewReader(strings.Repeat("x", maxDiscard))))
	endless := io.MultiReader(strings.NewReader(strings.Repeat("x", maxDiscard+1)), failing{io.ErrClosedPipe})
	require.Equal(t, 413, DiscardHTTP2(endless).Status)
	require.Equal(t, 408, DiscardHTTP2(failing{os.ErrDeadlineExceeded}).Status)
	require.Equal(t, 400, DiscardHTTP2(failing{io.ErrUnexpectedEOF}).Status)
}

// failing is a reader of an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
