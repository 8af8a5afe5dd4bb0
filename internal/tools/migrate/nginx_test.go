package migrate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFind: the chosen location is that of nginx, by the rules of its documentation.
func TestFind(t *testing.T) {
	t.Parallel()
	tree := readText(t, `server {
		location / { set $n root; }
		location /group1/ {
			set $n prefix;
			location ~ \.gif$ { set $n nested; }
			location /group1/M0F/ { set $n deeper; }
		}
		location ^~ /group2/ { set $n sure; location ~ \.png$ { set $n inner; } }
		location = /group1/exact { set $n exact; }
		location ~ \.JPG$ { set $n upper; }
		location ~* \.jpe?g$ { set $n any; }
		location ~/group1/M01 { set $n joined; }
		location @named { set $n named; }
	}`)
	tr := &translator{tree: tree, handled: map[*directive]bool{}}
	tr.collect()
	for path, want := range map[string]string{
		"/x": "root", "/group1/a.txt": "prefix", "/group1/M0F/a": "deeper", "/group1/a.gif": "nested",
		"/group1/a.JPG": "upper", "/group1/a.jpeg": "any", "/group1/M01/a.jpg": "any", "/group1/M01/a.txt": "joined",
		"/group2/a.jpg": "sure", "/group2/a.png": "inner", "/group1/exact": "exact", "/group1/exactly": "prefix",
	} {
		l, _ := find(tr.all[0].locations, path)
		require.NotNil(t, l, path)
		require.Equal(t, want, first(l.d.block, "set").arg(1), path)
	}
}

func TestAccessOf(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string]string{
		"allow 10.0.0.0/8; deny all":                                            "allow 10.0.0.0/8",
		"deny 10.0.0.1; deny 10.1.0.0/16":                                       "deny 10.0.0.1, 10.1.0.0/16",
		"deny 10.0.0.1; allow all":                                              "deny 10.0.0.1",
		"deny 10.0.0.0/31; allow 10.0.0.0/30; deny all":                         "allow 10.0.0.2/31",
		"allow 10.0.0.1; deny 10.0.0.0/30; allow all":                           "deny 10.0.0.0, 10.0.0.2/31",
		"allow 10.0.0.0/8; allow 198.51.100.24; deny 198.51.100.0/24; deny all": "allow 10.0.0.0/8, 198.51.100.24",
		"deny all":                        "none",
		"allow unix:; deny all":           "none",
		"allow 2001:db8::/32; deny all":   "allow 2001:db8::/32",
		"allow 192.0.2.1; deny 192.0.2.1": "deny ",
	} {
		tree := readText(t, "server { "+rules+"; }")
		a := accessOf(named(tree.root[0].block[0].block, "allow", "deny"))
		got := "deny " + list(a.deny)
		if a.closed {
			got = "allow " + list(a.allow)
		}
		if a.empty() {
			got = "none"
		}
		require.Equal(t, want, got, rules)
	}
}

func TestListenAddress(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"80": ":80", "*:8080": ":8080", "[::]:80": "[::]:80", "[::1]": "[::1]:80", "192.0.2.1": "192.0.2.1:80",
		"192.0.2.1:81": "192.0.2.1:81", "localhost": "localhost:80", "unix:/run/a.sock": "unix:/run/a.sock",
	} {
		require.Equal(t, want, listenAddress(given), given)
	}
}

func TestNginxUnits(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]int64{"30d": 2592000, "1h30m": 5400, "3600": 3600, "2w": 1209600,
		"1y": 31536000,
		"1M": 2592000, "0": 0, "1d 12h": 129600} {
		got, ok := nginxSeconds(given)
		require.True(t, ok, given)
		require.Equal(t, want, got, given)
	}
	for _, wrong := range []string{"", "x", "1x", "-1", "30 days", "99999999999d"} {
		_, ok := nginxSeconds(wrong)
		require.False(t, ok, wrong)
	}
	for given, want := range map[string]string{"500k": "500KB", "5m": "5MB", "1G": "1GB", "100": "100"} {
		got, ok := nginxSize(given)
		require.True(t, ok, given)
		require.Equal(t, want, got)
	}
}
