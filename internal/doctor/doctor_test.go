package doctor

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/config"

	"github.com/stretchr/testify/require"
)

// ownAddress returns an address of this host that is not loopback.
func ownAddress(t *testing.T) (own string) {
	t.Helper()
	list, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			own = p.Addr().String()
		}
	}
	if own == "" {
		t.Skip("skipped: this host has only loopback addresses")
	}
	return own
}

// TestAddressTowardsRedis: of several routes to Redis, the first one whose address other hosts can
// reach is used.
func TestAddressTowardsRedis(t *testing.T) {
	own := ownAddress(t)
	for servers, want := range map[string]string{
		"127.0.0.1:1": "127.0.0.1", "127.0.0.1:1 " + own + ":1": own, own + ":1 127.0.0.1:1": own,
		"redis-of-nobody.invalid:1 " + own + ":1": own, "redis-of-nobody.invalid:1": "invalid IP",
	} {
		address, err := addressTowards(t.Context(), strings.Fields(servers))
		require.Equal(t, want, address.String(), servers)
		require.Equal(t, address.IsValid(), err == nil)
	}
}

// TestAdvertised: an address of advertise = auto that other hosts do not reach is a warning.
func TestAdvertised(t *testing.T) {
	own := ownAddress(t)
	for _, c := range []struct{ redis, listen, url, want string }{
		{"127.0.0.1", ":8887", "https://127.0.0.1:8887", "would ask themselves"},
		{"127.0.0.1", "127.0.0.1:8887", "https://127.0.0.1:8887", ""},
		{own, ":8887", "https://" + own + ":8887", ""},
		{own, "127.0.0.1:8887", "https://" + own + ":8887", "takes no connections"},
	} {
		file := filepath.Join(t.TempDir(), "mod_fastdfs.conf")
		require.NoError(t, os.WriteFile(file, []byte("url_have_group_name=true\nstore_path_count=0\n"+
			"[redis]\naddresses = "+c.redis+":6379\n[peer]\nlisten = "+c.listen+"\nadvertise = auto\n"+
			"secret = 7f3a9c51e08b4d26\n"), 0o600))
		cfg, problems := config.Load(file)
		require.NotNil(t, cfg, "%v", problems)
		url, problems := Advertised(t.Context(), cfg)
		require.Equal(t, c.url, url)
		if c.want == "" {
			require.Empty(t, problems, c)
			continue
		}
		require.Len(t, problems, 1, c)
		require.Contains(t, problems[0].String(), c.want)
	}
}

// TestTrackerNames: a name that does not resolve is a warning at its line.
func TestTrackerNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mod_fastdfs.conf")
	require.NoError(t, os.WriteFile(file, []byte("url_have_group_name=true\nstore_path_count=0\n"+
		"tracker_server=127.0.0.1:22122\ntracker_server=localhost:22122\ntracker_server=[::1]:22122\n"+
		"tracker_server=10.0.0.1,tracker-of-nobody.invalid:22122\n"), 0o600))
	cfg, problems := Check(t.Context(), file)
	require.NotNil(t, cfg)
	var lines []string
	for _, p := range problems {
		if p.Key == "tracker_server" {
			lines = append(lines, strings.TrimPrefix(p.String(), file))
		}
	}
	require.Len(t, lines, 1, "%v", problems)
	require.Contains(t, lines[0], `:6: warning: the tracker's name "tracker-of-nobody.invalid" does not resolve`)
	require.Contains(t, lines[0], "; correct the name")
}

// TestListening: listeners on different addresses of a host can use the same port; a listener on
// all addresses conflicts with each of them.
func TestListening(t *testing.T) {
	t.Parallel()
	listen := func(address string) string {
		t.Helper()
		ln, err := net.Listen("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = ln.Close() })
		_, port, err := net.SplitHostPort(ln.Addr().String())
		require.NoError(t, err)
		return ":" + port
	}
	port := listen("127.0.0.1:0")
	listen("127.0.0.2" + port)
	one, other, all := listening("127.0.0.1"+port), listening("127.0.0.2"+port), listening(port)
	require.Len(t, one, 1)
	require.Len(t, other, 1)
	require.NotEqual(t, one, other)
	require.ElementsMatch(t, append(one, other...), all)
	require.Empty(t, listening("127.0.0.3"+port))
	require.Len(t, listening("127.0.0.3"+listen(":0")), 1)
}

func TestInTheWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wanted, taken string // "" = no address
		want          bool
	}{
		{"", "127.0.0.1", true},
		{"", "::1", true},
		{"0.0.0.0", "::1", true}, // Go listens on both families
		{"::", "127.0.0.1", true},
		{"::", "0.0.0.0", true},
		{"127.0.0.1", "0.0.0.0", true},
		{"127.0.0.1", "::", true},
		{"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1", "::ffff:127.0.0.1", true},
		{"127.0.0.1", "127.0.0.2", false},
		{"127.0.0.1", "::1", false},
		{"::1", "::", true},
		{"::1", "::1", true},
		{"::1", "0.0.0.0", false},
		{"::1", "fe80::1", false},
	} {
		require.Equal(t, c.want, inTheWay(net.ParseIP(c.wanted), net.ParseIP(c.taken)), "%q, taken is %q", c.wanted,
			c.taken)
	}
}
