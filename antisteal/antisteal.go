// Package antisteal makes and checks the tokens that prevent other sites from linking to files
// (FastDFS "anti-steal"):
//
//	token = lower-case hex of md5(F + secret + ts)
//
// F is the file id without its group ("M00/00/0C/....jpg"), ts a decimal unix time. A download URL
// has both:
//
//	c := antisteal.NewChecker(antisteal.Options{Secrets: []string{"key"}, TTL: 10 * time.Minute})
//	query := antisteal.Query("key", "M00/00/0C/x.jpg", time.Now().Unix()) // token=...&ts=...
//	err := c.Check("M00/00/0C/x.jpg", token, ts, time.Now())
//
// FastDFS and its tools use MD5, so the scheme is as strong as its secret. Tokens are compared in
// constant time. The package depends on the standard library only. Other programs can use it,
// see docs/locks.md.
package antisteal

import (
	"cmp"
	"crypto/md5"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"time"
)

// The reasons why Check rejects a token.
var (
	// ErrMissing: the token or the time is missing.
	ErrMissing = errors.New("token or ts is missing")
	// ErrMalformed: the token does not have 32 characters, or ts is not a decimal number without
	// leading zeros.
	ErrMalformed = errors.New("token or ts is malformed")
	// ErrExpired: ts is older than the TTL.
	ErrExpired = errors.New("token has expired")
	// ErrMismatch: the token was not made from this file, this time and one of the secrets.
	ErrMismatch = errors.New("token does not match")
)

// TokenLength is the length of a token in characters.
const TokenLength = 2 * md5.Size

// Options of a Checker.
type Options struct {
	// Secrets are the accepted keys, the current one first. Further keys are for a change of keys.
	Secrets []string
	// TTL is the time after its ts for which a token is valid; 0 means 600 s, the default of
	// FastDFS.
	TTL time.Duration
}

// Checker checks tokens. It is safe for concurrent use.
type Checker struct {
	secrets []string
	ttl     int64 // seconds
}

// NewChecker returns a checker for the options.
func NewChecker(o Options) *Checker {
	ttl := cmp.Or(o.TTL, 600*time.Second)
	return &Checker{secrets: o.Secrets, ttl: int64(ttl / time.Second)}
}

// Check returns nil if the token was made for the file (a file id without its group) and is valid,
// else one of the errors of this package. A token with ts = 0 never expires; one with a ts in the
// future is valid until TTL after it. Check allocates nothing for ids and secrets of ordinary
// length.
func (c *Checker) Check(file string, token, ts []byte, now time.Time) error {
	if len(token) == 0 || len(ts) == 0 {
		return ErrMissing
	}
	at, ok := parseTime(ts)
	if !ok || len(token) != TokenLength {
		return ErrMalformed
	}
	if at > 0 && now.Unix()-at > c.ttl {
		return ErrExpired
	}
	match := 0
	var want [TokenLength]byte
	for _, secret := range c.secrets { // all, so that the duration does not depend on the matching secret
		digest(&want, secret, file, at)
		match |= subtle.ConstantTimeCompare(token, want[:])
	}
	if match == 0 {
		return ErrMismatch
	}
	return nil
}

// Query returns the query of a URL for a download now, with the first secret. The Checker must have
// one.
func (c *Checker) Query(file string, now time.Time) string {
	return Query(c.secrets[0], file, now.Unix())
}

// Token returns the token for a file (a file id without its group) and a unix time in seconds; 0
// makes one that never expires.
func Token(secret, file string, ts int64) string {
	var token [TokenLength]byte
	digest(&token, secret, file, ts)
	return string(token[:])
}

// Query returns the query of a URL that permits the download of the file.
func Query(secret, file string, ts int64) string {
	return "token=" + Token(secret, file, ts) + "&ts=" + strconv.FormatInt(ts, 10)
}

// digest writes the token to dst.
func digest(dst *[TokenLength]byte, secret, file string, ts int64) {
	var room [256]byte // longer than any id with most secrets; append allocates if it is not enough
	b := append(room[:0], file...)
	b = append(b, secret...)
	b = strconv.AppendInt(b, ts, 10)
	sum := md5.Sum(b)
	hex.Encode(dst[:], sum[:])
}

// parseTime reads unix seconds: decimal digits without leading zeros.
func parseTime(ts []byte) (int64, bool) {
	if len(ts) > 1 && ts[0] == '0' {
		return 0, false
	}
	var n int64
	for _, c := range ts {
		if c < '0' || c > '9' || n > math.MaxInt64/10-1 {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
