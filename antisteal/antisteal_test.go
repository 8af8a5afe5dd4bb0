package antisteal

import (
	"crypto/md5"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	file   = "M00/00/0C/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg"
	secret = "FastDFS1234567890"
)

var now = time.Unix(1700000000, 0)

func ExampleQuery() {
	fmt.Println(Query("secret", "M00/00/00/a.jpg", 1700000000))
	// Output: token=f61baab260420bdf7e242a174b05e9ae&ts=1700000000
}

func checker(secrets ...string) *Checker {
	return NewChecker(Options{Secrets: secrets, TTL: 900 * time.Second})
}

func check(c *Checker, token, ts string) error { return c.Check(file, []byte(token), []byte(ts), now) }

func TestTokenIsMD5OfFileSecretTime(t *testing.T) {
	want := fmt.Sprintf("%x", md5.Sum([]byte(file+secret+"1700000000")))
	require.Equal(t, want, Token(secret, file, 1700000000))
	require.Equal(t, "token="+want+"&ts=1700000000", Query(secret, file, 1700000000))
}

func TestAccepted(t *testing.T) {
	for name, ts := range map[string]int64{
		"now":            now.Unix(),
		"last second":    now.Unix() - 900,
		"never expires":  0,
		"a year ahead":   now.Unix() + 365*86400,
		"beyond 32 bits": 1 << 33,
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, check(checker(secret), Token(secret, file, ts), fmt.Sprint(ts)))
		})
	}
}

func TestCheckersOwnQuery(t *testing.T) {
	require.Equal(t, Query("new", file, now.Unix()), checker("new", "old").Query(file, now))
}

func TestSecretRotation(t *testing.T) {
	both := checker("new", "old")
	for _, s := range []string{"new", "old"} {
		require.NoError(t, check(both, Token(s, file, 0), "0"))
	}
	require.ErrorIs(t, check(checker("new"), Token("old", file, 0), "0"), ErrMismatch)
	require.ErrorIs(t, check(checker(), Token("", file, 0), "0"), ErrMismatch, "without a secret nothing is accepted")
}

func TestRejected(t *testing.T) {
	ts := fmt.Sprint(now.Unix())
	good := Token(secret, file, now.Unix())
	tests := []struct {
		name, token, ts string
		want            error
	}{
		{"no token", "", ts, ErrMissing},
		{"no time", good, "", ErrMissing},
		{"31 characters", good[:31], ts, ErrMalformed},
		{"upper case", strings.ToUpper(good), ts, ErrMismatch},
		{"one bit off", flip(good), ts, ErrMismatch},
		{"no number", Token(secret, file, 0), "abc", ErrMalformed},
		{"zero with a leading zero", Token(secret, file, 0), "00", ErrMalformed},
		{"leading zero", good, "0" + ts, ErrMalformed},
		{"wraps 32 bits", good, fmt.Sprint(now.Unix() + 1<<32), ErrMismatch},
		{"wraps 64 bits", good, "18446744075409551616", ErrMalformed},
		{"expired by a second", Token(secret, file, now.Unix()-901), fmt.Sprint(now.Unix() - 901), ErrExpired},
		{"other secret", Token("x", file, now.Unix()), ts, ErrMismatch},
		{"other time", good, fmt.Sprint(now.Unix() - 1), ErrMismatch},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.ErrorIs(t, check(checker(secret), tt.token, tt.ts), tt.want)
		})
	}
}

func flip(token string) string {
	last := byte('0')
	if token[31] == '0' {
		last = '1'
	}
	return token[:31] + string(last)
}

func TestDefaultTTL(t *testing.T) {
	c := NewChecker(Options{Secrets: []string{secret}})
	require.NoError(t, check(c, Token(secret, file, now.Unix()-600), fmt.Sprint(now.Unix()-600)))
	require.ErrorIs(t, check(c, Token(secret, file, now.Unix()-601), fmt.Sprint(now.Unix()-601)), ErrExpired)
}

func FuzzCheck(f *testing.F) {
	f.Add("M00/00/00/a.jpg", "0123456789abcdef0123456789abcdef", "1700000000", "key")
	f.Add("", "", "", "")
	f.Add(file, Token(secret, file, 0), "0", secret)
	f.Fuzz(func(t *testing.T, file, token, ts, key string) {
		err := checker(key).Check(file, []byte(token), []byte(ts), now)
		at, ok := parseTime([]byte(ts))
		good := ok && ts != "" && token == Token(key, file, at) && (at == 0 || now.Unix()-at <= 900)
		require.Equal(t, good, err == nil)
	})
}
