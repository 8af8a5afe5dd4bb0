package config

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
)

// FuzzAddresses: the packages that use an accepted address, network or URL accept it too.
func FuzzAddresses(f *testing.F) {
	for _, seed := range []string{"", ":8888", "127.0.0.1:80, [::1]:81", "unix:/run/gateway", "*:80", "a,b:22122",
		"[a,::1]:22122", "::1", "[]:1", "a:", "a:0", "a,,b",
		"10.0.0.0/8, local-networks, ::1", "::ffff:1.2.3.4/97", "fe80::1%eth0", "rediss://h:6379", "u:p@h:1",
		"https://h:8887", "https://h/", "https://h#", "https://h?", "https://[::1%25x]:1", "/files/a", "/../a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, v string) {
		var listen []string
		if listeners(&listen).parse(v, position{}) == nil {
			for _, l := range listen {
				if !strings.HasPrefix(l, "unix:/") {
					requirePort(t, l, 0)
				}
			}
		}
		if hosts, port, ok := fdfs.ParseHosts(v); ok {
			require.True(t, len(hosts) == 1 || len(hosts) == 2)
			for _, h := range hosts {
				requirePort(t, net.JoinHostPort(h, strconv.Itoa(max(port, 1))), 1)
			}
		}
		var networks []netip.Prefix
		var local bool
		if sources(&networks, &local).parse(v, position{}) == nil {
			require.LessOrEqual(t, len(networks), strings.Count(v, ",")+1)
			for _, n := range networks {
				require.True(t, n.IsValid())
				require.Equal(t, n.Masked(), n)
			}
		}
		var redis Redis
		if redisEndpoints(&redis).parse(v, position{}) == nil {
			for _, a := range redis.Addresses {
				requirePort(t, a, 1)
			}
		}
		var peer string
		if baseURL(&peer).parse(v, position{}) == nil && peer != "" {
			u, err := url.Parse(peer + "/entry?id=x")
			require.NoError(t, err)
			require.Equal(t, "https", u.Scheme)
			require.Nil(t, u.User)
			require.Equal(t, "/entry", u.Path, "%q leads elsewhere", peer)
		}
		var path string
		if prefix(&path).parse(v, position{}) == nil {
			again := path
			require.Nil(t, prefix(&path).parse(again, position{}))
			require.Equal(t, again, path)
			u, err := url.Parse("http://h" + path + "/x")
			require.NoError(t, err)
			require.Equal(t, path+"/x", u.Path)
		}
	})
}

// requirePort requires an address host:port that net accepts, with a port of at least low.
func requirePort(t *testing.T, address string, low int) {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	require.NoError(t, err, "%q", address)
	port, err := strconv.Atoi(text)
	require.NoError(t, err, "%q", address)
	require.True(t, low <= port && port <= 65535, "%q", address)
}
