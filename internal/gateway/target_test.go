package gateway

import (
	"net/url"
	slashpath "path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTargetPath(t *testing.T) {
	tests := []struct{ name, raw, want string }{
		{"plain", "/group1/M00/00/01/x.jpg", "/group1/M00/00/01/x.jpg"},
		{"query", "/a/b?c=/../d", "/a/b"},
		{"two slashes", "//a///b", "/a/b"},
		{"dot", "/a/./b/.", "/a/b/"},
		{"dot dot", "/a/x/../b", "/a/b"},
		{"dot dot at the end", "/a/b/..", "/a/"},
		{"up to the root and down", "/a/../b", "/b"},
		{"escapes", "/%61/b%2Ec", "/a/b.c"},
		{"escaped slash", "/a%2Fb", "/a/b"},
		{"escaped dots", "/a/%2e%2e/b", "/b"},
		{"decoded once", "/a%252Fb", "/a%2Fb"},
		{"escaped question mark", "/a%3Fb", "/a?b"},
		{"plus is no blank", "/a+b", "/a+b"},
		{"slash at the end stays", "/a/b/", "/a/b/"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var target target
			require.NoError(t, target.parse([]byte(tt.raw)))
			require.Equal(t, tt.want, string(target.path))
		})
	}
}

func TestTargetRejected(t *testing.T) {
	for name, raw := range map[string]string{
		"asterisk":                "*",
		"authority":               "gw.test:80",
		"empty":                   "",
		"absolute-form":           "http://gw.test/a",
		"above the root":          "/..",
		"above the root, escaped": "/%2e%2e/etc/passwd",
		"NUL":                     "/a%00b",
		"DEL":                     "/a%7f",
		"backslash":               "/a\\b",
		"escape cut short":        "/a%4",
		"escape without digits":   "/a%zz",
		"control in a plain path": "/a\x01b",
	} {
		t.Run(name, func(t *testing.T) {
			var target target
			err := target.parse([]byte(raw))
			require.Error(t, err)
			require.Equal(t, 400, rejectionOf(err).status)
		})
	}
}

func TestTargetParams(t *testing.T) {
	target := target{names: []string{"filename", "attname"}}
	query := func(q string) params {
		require.NoError(t, target.parse([]byte("/a?"+q)))
		return target.params
	}
	p := query("token=abc&ts=12&start=1&end=2&redirect=1&attname=x&filename=y")
	require.Equal(t, "abc 12 1 2 1 y", strings.Join([]string{string(p.token), string(p.ts), string(p.start),
		string(p.end), string(p.redirect), string(p.filename)}, " "))
	for q, want := range map[string]string{"attname=x": "x", "filename=y&attname=x": "y", "attname=1&attname=2": "1",
		"attname=x&filename=": "", "attname=&name=n": ""} {
		require.Equal(t, want, string(query(q).filename), q)
	}
	target.names = []string{"name", "a"}
	require.Equal(t, "3", string(query("filename=1&a=2&n%61me=3").filename))
	require.Nil(t, query("filename=1&attname=2").filename)
	target.names = []string{"filename"}
	require.Equal(t, "first", string(query("filename=first&filename=second").filename))
	require.Equal(t, "a b+c%zz", string(query("filename=a+b%2Bc%zz").filename), "a bad escape stays")
	require.Equal(t, "v", string(query("%74oken=v").token), "names are decoded too")
	require.Nil(t, query("TOKEN=x&&=y&tokenx=1").token, "names are case-sensitive")
	require.NotNil(t, query("filename=").filename, "empty is not absent")
	require.NotNil(t, query("filename").filename)
	require.Nil(t, query("").token)
	require.Equal(t, "z", string(query(strings.Repeat("a=b&", 100)+"token=z").token), "no limit on their number")
}

// FuzzTarget: an accepted path has no dot segments, and equals the path of net/url if that accepts
// the target too.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"/a/../b", "//a//%2e%2e/", "/%2f%2F..", "/a?b", "/a?filename=%zz&token=+"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var target target
		if target.parse([]byte(raw)) != nil {
			return
		}
		path := string(target.path)
		require.True(t, strings.HasPrefix(path, "/"))
		if strings.Contains(path, "//") || strings.ContainsAny(path, "\x00\r\n\\") {
			t.Fatalf("%q became %q", raw, path)
		}
		for _, segment := range strings.Split(path, "/") {
			require.NotContains(t, []string{".", ".."}, segment)
		}
		if u, err := url.ParseRequestURI(raw); err == nil && strings.HasPrefix(raw, "/") &&
			!strings.HasPrefix(raw, "//") && u.Path != "" {
			require.Equal(t, slashpath.Clean(u.Path), slashpath.Clean(path))
		}
	})
}
