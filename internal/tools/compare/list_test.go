package compare

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const id = "group1/M00/00/01/fwAAAWsCs5WAAB7vAACw72Tj3gY919.jpg"

// logLine returns a line of an nginx log in the combined format.
func logLine(request string) string {
	return `10.0.0.1 - - [22/Nov/2026:12:00:00 +0000] "` + request + `" 200 1000 "http://a/\x22" "curl/8.0"`
}

func TestTarget(t *testing.T) {
	for line, want := range map[string]string{
		id:                                      "/" + id,
		"  " + id + "\r\n":                      "/" + id,
		strings.TrimPrefix(id, "group1/"):       "/" + strings.TrimPrefix(id, "group1/"), // for URLs without a group
		id + "?token=a&ts=0":                    "/" + id + "?token=a&ts=0",
		"/any/path?q=%20":                       "/any/path?q=%20",
		"//a":                                   "//a",
		logLine("GET /" + id + " HTTP/1.1"):     "/" + id,
		logLine("HEAD /a?b=c HTTP/1.0"):         "/a?b=c",
		logLine(`GET /a\x22b\xE4\x5C HTTP/1.1`): "/a\"b\xe4\\",
		logLine(`GET /a\"b\\c\d HTTP/1.1`):      `/a"b\c\d`,
		`example.org ` + logLine("GET /vhost HTTP/1.1"): "/vhost",
		`"GET /a HTTP/2.0"`:                             "/a",
	} {
		got, err := Target(line)
		require.NoError(t, err, line)
		require.Equal(t, want, got)
	}
	for line, want := range map[string]string{
		"hello":                              "neither a file id",
		"http://host/" + id:                  "neither a file id",
		"/a b":                               `' ' in a path`,
		"/a\x00":                             `'\x00' in a path`,
		"/" + strings.Repeat("a", maxTarget): "too long",
		logLine("POST /a HTTP/1.1"):          "only GET and HEAD are compared, not POST",
		logLine(`\x16\x03\x01`):              "is no request for a path",
		logLine("-"):                         "is no request for a path",
		logLine("GET /a"):                    "is no request for a path",
		logLine("GET /a b HTTP/1.1"):         "is no request for a path",
		logLine("GET http://a/b HTTP/1.1"):   "is no request for a path",
		logLine(`GET /a\x0D\x0Ab HTTP/1.1`):  `'\r' in a path`,
		`a "GET /a HTTP/1.1`:                 "the request has no end",
		`{"method":"GET","target":"/a"}`:     "is no request for a path",
	} {
		got, err := Target(line)
		require.ErrorContains(t, err, want, line)
		require.Empty(t, got)
	}
}

// read returns all targets of a list.
func read(t *testing.T, text string) (l *List, targets []string) {
	t.Helper()
	l = NewList(strings.NewReader(text))
	for {
		target, err := l.Next()
		if err == io.EOF {
			return l, targets
		}
		require.NoError(t, err)
		targets = append(targets, target)
	}
}

func TestList(t *testing.T) {
	long := logLine("GET /a HTTP/1.1") + strings.Repeat("x", 3*maxLine)
	l, targets := read(t, "/a\n\n/b\r\nhello\n/a\n"+long+"\n"+logLine("GET /b HTTP/1.1")+"\n/c")
	require.Equal(t, []string{"/a", "/b", "/c"}, targets)
	require.Equal(t, 2, l.Repeated)
	require.Equal(t, 2, l.Unreadable)
	require.ErrorContains(t, l.Why, "line 4: neither a file id")

	_, targets = read(t, "")
	require.Empty(t, targets)
	l, targets = read(t, strings.Repeat("x", 10*maxLine))
	require.Empty(t, targets)
	require.Equal(t, 1, l.Unreadable)
}

// TestListRemembers: a list remembers the last targets, up to a limit, and skips their repetitions.
func TestListRemembers(t *testing.T) {
	var text strings.Builder
	for i := range remembered + 1 {
		fmt.Fprintf(&text, "/%d\n", i)
	}
	l, targets := read(t, text.String()+fmt.Sprintf("/%d\n/0\n", remembered))
	require.Len(t, targets, remembered+2, "the first one is compared again")
	require.Equal(t, 1, l.Repeated)
}
