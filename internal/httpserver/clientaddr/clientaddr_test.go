package clientaddr

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testProxies are the trusted networks of these tests, and one of their addresses as the peer.
var (
	testProxies = NewNetworks([]netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"),
	}, false)
	testPeer = netip.MustParseAddr("10.0.0.1")
)

// fieldLines splits the lines of a field, which the tables separate by "|".
func fieldLines(text string) (lines [][]byte) {
	if text == "(absent)" {
		return nil
	}
	for _, line := range strings.Split(text, "|") {
		lines = append(lines, []byte(line))
	}
	return lines
}

func TestForwardedFor(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"(absent)":                              "10.0.0.1",
		"":                                      "10.0.0.1",
		"192.0.2.1":                             "192.0.2.1",
		"1.1.1.1, 192.0.2.1, 10.0.0.7":          "192.0.2.1", // 1.1.1.1 is from a client that is no trusted proxy
		"1.1.1.1|192.0.2.1|10.0.0.7, 10.0.0.8":  "192.0.2.1",
		"1.1.1.1, 192.0.2.1|":                   "192.0.2.1",
		"10.0.0.9, 10.0.0.7":                    "10.0.0.9", // all are proxies: the first one counts
		"192.0.2.1, unknown, 10.0.0.7":          "10.0.0.7",
		"192.0.2.1,,10.0.0.7 ,\t":               "192.0.2.1",
		"192.0.2.1:5000":                        "192.0.2.1",
		"[2001:db8::1]":                         "2001:db8::1",
		"[2001:db8::1]:443, fd00::7":            "2001:db8::1",
		"::ffff:192.0.2.1":                      "192.0.2.1",
		"::ffff:10.0.0.7":                       "10.0.0.7",
		"fe80::1%eth0":                          "10.0.0.1",
		"192.0.2.1:http":                        "10.0.0.1",
		"192.0.2.1:":                            "10.0.0.1",
		"192.0.2.1:123456":                      "10.0.0.1",
		"[192.0.2.1]":                           "10.0.0.1",
		"[2001:db8::1":                          "10.0.0.1",
		"192.0.2.1 192.0.2.2":                   "10.0.0.1",
		strings.Repeat("10.0.0.3,", 1000) + "x": "10.0.0.1",
	} {
		require.Equal(t, want, ForwardedFor(testProxies, testPeer, fieldLines(field)).String(), "%.60q", field)
	}
}

func TestRealIP(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"(absent)":             "10.0.0.1",
		"192.0.2.1":            "192.0.2.1",
		" 192.0.2.1\t":         "192.0.2.1",
		"192.0.2.1|192.0.2.2":  "192.0.2.2",
		"192.0.2.1, 192.0.2.2": "10.0.0.1",
		"2001:db8::1":          "2001:db8::1",
		"10.0.0.9":             "10.0.0.9",
		"x":                    "10.0.0.1",
	} {
		require.Equal(t, want, RealIP(testPeer, fieldLines(field)).String(), field)
	}
}

func TestForwarded(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{ // address, proto and host
		"(absent)":                        "10.0.0.1",
		"for=192.0.2.1":                   "192.0.2.1",
		"For=192.0.2.1;Proto=https":       "192.0.2.1 https",
		`for="192.0.2.1:4711"`:            "192.0.2.1",
		`for="[2001:db8:cafe::17]:4711"`:  "2001:db8:cafe::17", // RFC 7239 section 4
		`for="[2001:db8::1]"`:             "2001:db8::1",
		`for="192.0.2.1:_port"`:           "192.0.2.1",
		`proto=http; for=192.0.2.1;by=_x`: "192.0.2.1 http",
		`for=192.0.2.1;proto=https;host="a.test:8443", for=10.0.0.7;proto=http;host=b`: "192.0.2.1 https a.test:8443",
		"for=1.1.1.1, for=192.0.2.1, for=10.0.0.7":                                     "192.0.2.1",
		"for=1.1.1.1|for=192.0.2.1|for=10.0.0.7":                                       "192.0.2.1",
		`for="_hidden", for=10.0.0.7;proto=http`:                                       "10.0.0.7 http",
		"for=unknown":                                                                  "10.0.0.1",
		"proto=https":                                                                  "10.0.0.1",
		"for=":                                                                         "10.0.0.1",
		"":                                                                             "10.0.0.1",
		`for=1.1.1.1;for=192.0.2.1`:                                                    "10.0.0.1", // twice
		`for="1.1.1.1, for=192.0.2.1`:                                                  "192.0.2.1",
		`for=1.1.1.1;host=", for=192.0.2.1`:                                            "192.0.2.1",
		`for=1.1.1.1, x="\", for="192.0.2.1"`:                                          "192.0.2.1",
		`for="192.0.2.1"x`:                                                             "10.0.0.1",
		`for="192\.0.2.1"`:                                                             "10.0.0.1",
		`for=192.0.2.1;host="a, b"`:                                                    "192.0.2.1 a, b",
		`for=1.1.1.1;host="a\", for=6.6.6.6;y=\"z"`:                                    "10.0.0.1",
		`for=192.0.2.1;host="a\", b"`:                                                  "10.0.0.1",
	} {
		a, proto, host := Forwarded(testProxies, testPeer, fieldLines(field))
		require.Equal(t, want, strings.Join(strings.Fields(a.String()+" "+string(proto)+" "+string(host)), " "),
			field)
	}
}

func TestLastOf(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"(absent)": "", "https": "https", "http, https": "https", "http|https": "https", " a , b ": "b", "a,": "",
	} {
		require.Equal(t, want, string(LastOf(fieldLines(field))), field)
	}
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	var prefixes []netip.Prefix
	for _, p := range []string{
		"10.1.0.0/16", "10.0.0.0/8", "192.0.2.7/32", "192.0.2.8/31", "::ffff:198.51.100.0/120", "2001:db8::/32",
		"fd00::1/128",
	} {
		prefixes = append(prefixes, netip.MustParsePrefix(p))
	}
	n := NewNetworks(prefixes, false)
	for address, want := range map[string]bool{
		"10.0.0.0": true, "10.255.255.255": true, "10.1.2.3": true, "11.0.0.0": false, "9.255.255.255": false,
		"192.0.2.6": false, "192.0.2.7": true, "192.0.2.8": true, "192.0.2.9": true, "192.0.2.10": false,
		"198.51.100.3": true, "::ffff:198.51.100.3": true, "198.51.101.3": false, "2001:db8:ffff::1": true,
		"2001:db9::": false, "fd00::1": true, "fd00::1%eth0": true, "fd00::2": false, "::": false, "0.0.0.0": false,
	} {
		require.Equal(t, want, n.Contains(netip.MustParseAddr(address)), address)
	}
	require.False(t, n.Contains(netip.Addr{}))
	require.True(t, NewNetworks(nil, true).Contains(netip.Addr{}))
	require.False(t, NewNetworks(nil, true).Contains(testPeer))
	require.False(t, (*Networks)(nil).Contains(testPeer))
	all := NewNetworks([]netip.Prefix{netip.MustParsePrefix("::/0"), netip.MustParsePrefix("0.0.0.0/0")}, false)
	for _, a := range []string{"0.0.0.0", "255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"} {
		require.True(t, all.Contains(netip.MustParseAddr(a)), a)
	}
	require.False(t, (*Proxies)(nil).Trusts(testPeer))
}

func TestBlock(t *testing.T) {
	for from, want := range map[string]string{"192.0.2.1": "192.0.2.1", "::1": "::1",
		"2001:db8:1:2:3::4": "2001:db8:1:2::", "fe80::1%eth0": "fe80::"} {
		require.Equal(t, netip.MustParseAddr(want), Block(netip.MustParseAddr(from)), from)
	}
	require.False(t, Block(netip.Addr{}).IsValid())
}

// FuzzLists: the list member of a trusted proxy counts, whatever an unknown client writes before
// it.
func FuzzLists(f *testing.F) {
	f.Add("192.0.2.1", true)
	f.Add(`for="[2001:db8::1]:80";proto=https, for=_x`, false)
	f.Add(`for="a\"b, for=1.1.1.1`, true)
	const own = "192.0.2.77"
	f.Fuzz(func(t *testing.T, text string, sameLine bool) {
		lists, elements := [][]byte{[]byte(text)}, [][]byte{[]byte(text)}
		ForwardedFor(testProxies, testPeer, lists)
		RealIP(testPeer, lists)
		LastOf(lists)
		Forwarded(testProxies, testPeer, elements)
		if sameLine {
			lists[0] = append(lists[0], ", "+own+", 10.0.0.5"...)
			elements[0] = append(elements[0], ", for="+own+";proto=https, for=10.0.0.5"...)
		} else {
			lists = append(lists, []byte(own))
			elements = append(elements, []byte("for="+own+";proto=https"))
		}
		require.Equal(t, own, ForwardedFor(testProxies, testPeer, lists).String())
		a, proto, host := Forwarded(testProxies, testPeer, elements)
		require.Equal(t, own, a.String())
		require.Equal(t, "https", string(proto))
		require.Empty(t, host)
	})
}
