package guard

import (
	"net/http"
	"strings"
	"testing"

	"fastdfs-gateway/internal/httpserver/http2server"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2/hpack"
)

// TestCheckHTTP2: requests that http2server has decoded have the same limits and rules as those of
// a Conn.
func TestCheckHTTP2(t *testing.T) {
	long := strings.Repeat("x", maxTarget)
	big, other := http.Header{"Cookie": {strings.Repeat("x", maxHead)}}, http.Header{"Expect": {"x"}}
	for name, tt := range map[string]struct {
		method, target, host string
		header               http.Header
		problem              http2server.Problem
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
		"same host twice":       {method: "GET", target: "/", host: "a", header: hosts("a", "a"), status: 400},
		"fields": {method: "GET", target: "/", host: "h", problem: http2server.TooManyFields,
			status: 431},
		"size":        {method: "GET", target: "/", host: "h", header: big, status: 431},
		"expectation": {method: "GET", target: "/", host: "h", header: other, status: 417},
		"large body": {method: "GET", target: "/", host: "h", status: 413,
			problem: http2server.BodyTooLarge},
		"late body": {method: "GET", target: "/", host: "h", problem: http2server.BodyLate, status: 408},
		"cut head":  {method: "GET", target: "/", problem: http2server.HeadTooLong, status: 431},
		"cut path":  {method: "GET", problem: http2server.HeadTooLong, status: 414},
	} {
		r := &http2server.Request{Method: tt.method, Target: tt.target, Authority: tt.host, Problem: tt.problem}
		for name, values := range tt.header {
			for _, value := range values {
				r.Fields = append(r.Fields, hpack.HeaderField{Name: strings.ToLower(name), Value: value})
			}
		}
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
