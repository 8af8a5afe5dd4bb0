package fleet

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	testURI  = "/_peer/segment?file=group1%2FM00%2F00%2F00%2Fx&index=0&offset=0"
	testSelf = "http://10.0.0.2:8888"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestVerifyAcceptsASignedRequestOnce(t *testing.T) {
	v := newVerifier("secret", testSelf)
	header := sign("secret", "gateway-1", http.MethodGet, testSelf, testURI, noon)

	sender, err := v.verify(http.MethodGet, testURI, header, noon.Add(time.Second))
	require.NoError(t, err)
	require.Equal(t, "gateway-1", sender)

	_, err = v.verify(http.MethodGet, testURI, header, noon.Add(2*time.Second))
	require.ErrorIs(t, err, ErrSignature)
	require.ErrorContains(t, err, "sent before")
}

func TestVerifyRefuses(t *testing.T) {
	good := sign("secret", "gateway-1", http.MethodGet, testSelf, testURI, noon)
	last := byte('0')
	if good[len(good)-1] == '0' {
		last = '1'
	}
	for name, c := range map[string]struct {
		secret, method, uri, header string
		now                         time.Time
		text                        string
	}{
		"another secret":     {"other", "GET", testURI, good, noon, "another secret"},
		"no secret":          {"", "GET", testURI, sign("", "gateway-1", "GET", testSelf, testURI, noon), noon, "another secret"},
		"another method":     {"secret", "POST", testURI, good, noon, "another secret"},
		"another path":       {"secret", "GET", testURI + "1", good, noon, "another secret"},
		"another gateway":    {"secret", "GET", testURI, sign("secret", "gateway-1", "GET", "http://10.0.0.3:8888", testURI, noon), noon, "another secret"},
		"changed mac":        {"secret", "GET", testURI, good[:len(good)-1] + string(last), noon, "another secret"},
		"changed sender":     {"secret", "GET", testURI, strings.Replace(good, "from=gateway-1", "from=gateway-2", 1), noon, "another secret"},
		"changed time":       {"secret", "GET", testURI, strings.Replace(good, "time=1", "time=2", 1), noon, "another secret"},
		"clock behind":       {"secret", "GET", testURI, good, noon.Add(31 * time.Second), "-31s off"},
		"clock ahead":        {"secret", "GET", testURI, good, noon.Add(-45 * time.Second), "is 45s off"},
		"empty":              {"secret", "GET", testURI, "", noon, "four fields"},
		"another version":    {"secret", "GET", testURI, "v2" + good[2:], noon, "four fields"},
		"upper case":         {"secret", "GET", testURI, strings.ToUpper(good), noon, "four fields"},
		"leading zero":       {"secret", "GET", testURI, strings.Replace(good, "time=", "time=0", 1), noon, "as it is made"},
		"a field twice":      {"secret", "GET", testURI, good + " mac=00", noon, "four fields"},
		"too long":           {"secret", "GET", testURI, strings.Repeat("a", maxSignature+1), noon, "allowed"},
		"escape in the name": {"secret", "GET", testURI, strings.Replace(good, "from=g", "from=%67", 1), noon, "as it is made"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newVerifier(c.secret, testSelf).verify(c.method, c.uri, c.header, c.now)
			require.ErrorIs(t, err, ErrSignature)
			require.ErrorContains(t, err, c.text)
		})
	}
}

// A signature is never good twice, whenever it comes again, and those that are remembered are bounded.
func TestVerifyForgetsOnlyWhatIsTooOld(t *testing.T) {
	v := newVerifier("secret", testSelf)
	v.capacity = 100
	for step := range 40 {
		now := noon.Add(time.Duration(step) * 7 * time.Second)
		header := sign("secret", "gateway-1", "GET", testSelf, testURI, now.Add(signatureWindow)) // good for as long as any can be
		_, err := v.verify("GET", testURI, header, now)
		require.NoError(t, err)
		for _, later := range []time.Duration{0, 29, 31, 59, 60, 61, 125, 300} {
			_, err := v.verify("GET", testURI, header, now.Add(later*time.Second))
			require.ErrorIs(t, err, ErrSignature, "after %d s", later)
		}
		v.seen, v.before, v.rotated = nil, nil, time.Time{}
	}
	for range 100 {
		_, err := v.verify("GET", testURI, sign("secret", "gateway-1", "GET", testSelf, testURI, noon), noon)
		require.NoError(t, err)
	}
	_, err := v.verify("GET", testURI, sign("secret", "gateway-1", "GET", testSelf, testURI, noon), noon)
	require.ErrorContains(t, err, "more than 100 requests")
	for minute := 2; minute <= 6; minute += 2 {
		now := noon.Add(time.Duration(minute) * time.Minute)
		_, err := v.verify("GET", testURI, sign("secret", "gateway-1", "GET", testSelf, testURI, now), now)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(v.seen)+len(v.before), 2)
}

func TestVerifyRemembersOverTurns(t *testing.T) {
	v := newVerifier("secret", testSelf)
	var sent []string
	var good []time.Time
	for second := range 200 {
		now := noon.Add(time.Duration(second) * time.Second)
		header := sign("secret", "gateway-1", "GET", testSelf, testURI, now.Add(signatureWindow))
		_, err := v.verify("GET", testURI, header, now)
		require.NoError(t, err)
		sent, good = append(sent, header), append(good, now.Add(2*signatureWindow))
		for i := max(0, second-65); i < second; i++ {
			if now.After(good[i]) {
				continue
			}
			_, err := v.verify("GET", testURI, sent[i], now)
			require.ErrorContains(t, err, "sent before", "of second %d in second %d", i, second)
		}
	}
	require.LessOrEqual(t, len(v.seen)+len(v.before), 130)
}

func FuzzParseSignature(f *testing.F) {
	f.Add(sign("secret", "http://10.0.0.1:8888", "GET", testSelf, testURI, noon))
	f.Add("v1 time=1 nonce=00 from= mac=")
	f.Add("v1 time=1 nonce=00000000000000000000000000000000 from=%zz mac=00")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSignature(text)
		if err != nil {
			require.ErrorIs(t, err, ErrSignature)
			return
		}
		require.Equal(t, text, s.encode())
	})
}
