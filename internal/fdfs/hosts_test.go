package fdfs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseHosts(t *testing.T) {
	type parsed struct {
		hosts []string
		port  int
	}
	for text, want := range map[string]parsed{
		"a": {[]string{"a"}, 0}, "a:1": {[]string{"a"}, 1}, "a,b:65535": {[]string{"a", "b"}, 65535},
		"a , b:2": {[]string{"a", "b"}, 2}, "[a,b]:3": {[]string{"a", "b"}, 3},
		"a, fd00::1": {[]string{"a", "fd00::1"}, 0},
		"fd00::1":    {[]string{"fd00::1"}, 0}, "[fd00::1]:4": {[]string{"fd00::1"}, 4},
		"[fd00::6]": {[]string{"fd00::6"}, 0}, "fd00::a,10.0.0.10:5": {[]string{"fd00::a", "10.0.0.10"}, 5},
		"host-8.example:99": {[]string{"host-8.example"}, 99},
		"10.0.0.1,fd00::1":  {[]string{"10.0.0.1", "fd00::1"}, 0},
		"fe80::1%eth0":      {[]string{"fe80::1%eth0"}, 0}, "[fe80::1%eth0]:5": {[]string{"fe80::1%eth0"}, 5},
	} {
		hosts, port, ok := ParseHosts(text)
		require.True(t, ok, text)
		require.Equal(t, want, parsed{hosts, port}, text)
	}
	for _, bad := range []string{"", ":", ":1", "a:", "a:0", "a:65536", "a:x", "a,b,c", "a,", ",a", "[a", "[a]b",
		"[a]:", "[]", "[]:1", ",", "[fd00::1", "-a", ".a", "a/b", "a b", "a\x00",
		"fe80::1%a/b", strings.Repeat("h", maxHost+1)} {
		_, _, ok := ParseHosts(bad)
		require.False(t, ok, bad)
	}
}
