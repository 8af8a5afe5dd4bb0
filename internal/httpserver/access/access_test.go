package access

import (
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// absent is the Referer of a request without the field.
const absent = "(absent)"

func allows(r *Referers, referer string) bool {
	if referer == absent {
		return r.Allows(nil, false)
	}
	return r.Allows([]byte(referer), true)
}

func TestReferers(t *testing.T) {
	t.Parallel()
	for list, cases := range map[string]map[string]bool{
		"": {absent: false, "": false, "http://example.com/": false},
		"none": {
			absent: true, "": false, "x": false, "http://example.com/": false,
		},
		"blocked": {
			absent: false, "": true, "XXXX": true, "example.com": true, "ftp://example.com/": true,
			"android-app://com.example": true, "http:/example.com": true, "http://": false, "https://evil.test/": false,
		},
		"Example.com, other.test": {
			"http://example.com": true, "https://EXAMPLE.com/a/b?c#d": true, "HTTPS://example.com:8443/": true,
			"http://example.com./": true, "http://example.com?x": true, "http://user:pw@example.com/": true,
			"http://www.example.com/": false, "http://example.com.evil.test/": false,
			"http://evil.test/example.com":  false,
			"http://example.com@evil.test/": false, "http://evil.test?http://example.com/": false,
			"http://evil.test#@example.com": false, `http://evil.test\@example.com/`: false,
			"http://xexample.com/": false,
			"http://other.test/":   true, absent: false, "example.com": false, "http:///example.com/": false,
			"http://" + strings.Repeat("a", 9000): false,
		},
		"*.example.com": {
			"http://www.example.com/": true, "http://a.b.EXAMPLE.com/": true, "http://example.com/": false,
			"http://.example.com/": false, "http://evilexample.com/": false, "http://www.example.com.evil.test/": false,
		},
		".example.com": {
			"http://www.example.com/": true, "http://example.com/": true, "http://evilexample.com/": false,
		},
		"example.*, www.example.*": {
			"http://example.com/": true, "http://example.co.uk/": true, "http://www.example.org/": true,
			"http://example./": false, "http://example/": false, "http://a.example.com/": false,
			"http://example2.com/": false,
		},
		"*.Example.org/Shop/, example.*/a, other.test/": {
			"http://www.example.org/Shop/x?y": true, "https://a.example.org:8443/Shop/": true,
			"http://www.example.org/shop/": false, "http://www.example.org/Shop": false,
			"http://www.example.org":        false,
			"http://www.example.org?/Shop/": false, "http://example.org/Shop/": false, "http://evil.test/Shop/": false,
			"http://example.com/abc": true, "http://example.com/b": false,
			"http://other.test/": true, "http://other.test": false, `http://other.test\/`: false,
		},
		`~\.search\., ~^m\d+\.test/`: {
			"http://www.search.com/q": true, "https://WWW.SEARCH.NET": true, "http://a.test/?x=.search.": true,
			"http://M12.test/": true, "http://xm1.test/": false, "http://search.com/": false, ".search.": false,
			absent: false,
		},
		"127.0.0.1, ::1": {
			"http://127.0.0.1:8080/": true, "http://[::1]:8080/": true, "http://[::1/": true,
			"http://127.0.0.2/": false,
		},
	} {
		var members []string
		if list != "" {
			members = strings.Split(list, ", ")
		}
		r, err := NewReferers(members)
		require.NoError(t, err, list)
		for referer, want := range cases {
			require.Equal(t, want, allows(r, referer), "%s: %.60s", list, referer)
		}
	}
}

func TestReferersRejects(t *testing.T) {
	t.Parallel()
	for _, member := range []string{
		"", "*", "*.", ".", ".*", "*.example.*", "a*b.com", "~", "~(", "~" + strings.Repeat("a", 513),
		"http://example.com",
		"/path", "server_names/path", "a b/path", "example.com:80/path",
		"example.com:80", "server_names?", "a b",
	} {
		_, err := NewReferers([]string{member})
		require.Error(t, err, member)
	}
}

// FuzzReferers: a site is allowed only under its own name, whatever the rest of the field is.
func FuzzReferers(f *testing.F) {
	f.Add("example.com", "/path")
	f.Add("evil.test", "@example.com/")
	f.Fuzz(func(t *testing.T, host, rest string) {
		r, err := NewReferers([]string{"example.com", "*.example.com", "example.*"})
		require.NoError(t, err)
		got := r.Allows([]byte("http://"+host+rest), true)
		if got {
			require.Contains(t, strings.ToLower(host+rest), "example.")
		}
		evil := "http://evil.test/" + rest
		require.False(t, r.Allows([]byte(evil), true))
		_, _ = NewReferers([]string{host})
	})
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	l, now := NewLimiter(10, 3), time.Now()
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for range 3 {
		require.Zero(t, l.Allow(a, now))
	}
	for range 5 { // rejected requests do not make the wait longer
		require.InDelta(t, 100*time.Millisecond, l.Allow(a, now), float64(time.Millisecond))
	}
	require.Zero(t, l.Allow(b, now), "another address")
	require.NotZero(t, l.Allow(a, now.Add(50*time.Millisecond)))
	require.Zero(t, l.Allow(a, now.Add(101*time.Millisecond)))
	require.NotZero(t, l.Allow(a, now.Add(102*time.Millisecond)))
	for range 3 {
		require.Zero(t, l.Allow(a, now.Add(time.Minute)))
	}
	require.NotZero(t, l.Allow(a, now.Add(time.Minute)))
	slow := NewLimiter(0.5, 1)
	require.Zero(t, slow.Allow(a, now))
	require.InDelta(t, 2*time.Second, slow.Allow(a, now), float64(time.Millisecond))
}

// TestLimiterFlood: the number of addresses is bounded, and an address that continues to send
// requests stays limited in a flood of others.
func TestLimiterFlood(t *testing.T) {
	t.Parallel()
	l, now := NewLimiter(0.001, 1), time.Now()
	limited := netip.MustParseAddr("192.0.2.1")
	require.Zero(t, l.Allow(limited, now))
	a := netip.MustParseAddr("10.0.0.0")
	for i := range 2 * maxAddresses {
		a = a.Next()
		require.Zero(t, l.Allow(a, now))
		if i%(maxAddresses/8) == 0 {
			require.NotZero(t, l.Allow(limited, now), "after %d others", i)
		}
	}
	kept := 0
	for i := range l.shards {
		kept += len(l.shards[i].recent) + len(l.shards[i].earlier)
	}
	require.LessOrEqual(t, kept, maxAddresses)
}

func TestLimiterConcurrent(t *testing.T) {
	t.Parallel()
	l, now := NewLimiter(0.001, 100), time.Now()
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if l.Allow(netip.MustParseAddr("2001:db8::"), now) == 0 {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 100, allowed.Load())
}
