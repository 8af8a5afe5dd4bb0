// Package antisteal makes and checks the tokens that keep other sites from linking to files (FastDFS "anti-steal"):
//
//	token = lower-case hex of md5(F + secret + ts)
//
// F is the file id without its group ("M00/00/0C/....jpg"), ts a decimal unix time. A download URL carries both:
//
//	c := antisteal.NewChecker(antisteal.Options{Secrets: []string{"key"}, TTL: 10 * time.Minute})
//	query := antisteal.Query("key", "M00/00/0C/x.jpg", time.Now().Unix()) // token=...&ts=...
//	err := c.Check("M00/00/0C/x.jpg", token, ts, time.Now())
//
// MD5 is what FastDFS and every tool around it use; the scheme is no better than its secret. Checks compare in constant time.
package antisteal

import (
	"crypto/md5"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"time"
)

// The reasons for which Check refuses a token.
var (
	// ErrMissing means that the token or the time is not there.
	ErrMissing = errors.New("token or ts is missing")
	// ErrMalformed means that the token does not have 32 characters, or ts is no plain decimal number: it has other
	// characters or leading zeros.
	ErrMalformed = errors.New("token or ts is malformed")
	// ErrExpired means that ts lies more than the TTL back.
	ErrExpired = errors.New("token has expired")
	// ErrMismatch means that the token was not made from this file, this time and one of the secrets.
	ErrMismatch = errors.New("token does not match")
)

// TokenLength is the number of characters of a token.
const TokenLength = 2 * md5.Size

// Options say which tokens are accepted.
type Options struct {
	// Secrets are the keys, the current one first; further ones are accepted while keys are being changed.
	Secrets []string
	// TTL is how long after its ts a token is good; 0 means 600 s, the default of FastDFS.
	TTL time.Duration
}

// Checker checks tokens. It is safe for concurrent use.
type Checker struct {
	secrets []string
	ttl     int64 // seconds
}

// NewChecker returns a checker for the options.
func NewChecker(o Options) *Checker {
	if o.TTL == 0 {
		o.TTL = 600 * time.Second
	}
	return &Checker{secrets: o.Secrets, ttl: int64(o.TTL / time.Second)}
}

// Check returns nil when the token was made for the file (a file id without its group) and is still good, else one of the
// errors of this package. ts = 0 never expires; a ts in the future is good until then plus the TTL. It allocates nothing for
// ids and secrets of ordinary length.
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
	for _, secret := range c.secrets { // all of them, whichever matches: the time taken says nothing
		digest(&want, secret, file, at)
		match |= subtle.ConstantTimeCompare(token, want[:])
	}
	if match == 0 {
		return ErrMismatch
	}
	return nil
}

// Query returns the part of a URL behind "?" that lets the file be downloaded now wherever the first of the secrets is accepted.
func (c *Checker) Query(file string, now time.Time) string {
	return Query(c.secrets[0], file, now.Unix())
}

// Token returns the token for a file (a file id without its group) at a unix time in seconds; 0 makes one that never expires.
func Token(secret, file string, ts int64) string {
	var token [TokenLength]byte
	digest(&token, secret, file, ts)
	return string(token[:])
}

// Query returns the part of a URL behind "?" that lets the file be downloaded.
func Query(secret, file string, ts int64) string {
	return "token=" + Token(secret, file, ts) + "&ts=" + strconv.FormatInt(ts, 10)
}

// digest writes the token into dst.
func digest(dst *[TokenLength]byte, secret, file string, ts int64) {
	var room [256]byte // more than any id and most secrets; append grows onto the heap when it is not enough
	b := append(room[:0], file...)
	b = append(b, secret...)
	b = strconv.AppendInt(b, ts, 10)
	sum := md5.Sum(b)
	hex.Encode(dst[:], sum[:])
}

// parseTime reads unix seconds: decimal digits, as few as will do, and nothing else.
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
