package config

import (
	"math"
	"slices"
	"strings"
	"unicode"
)

// stockSecret is the secret in the http.conf of FastDFS.
const stockSecret = "FastDFS1234567890"

// longSecret is the advice for a weak secret.
const longSecret = "make a long random one by `openssl rand -hex 32`"

// publishedSecrets are the secrets in the files of FastDFS, and in the documents and examples of
// this gateway.
var publishedSecrets = []string{stockSecret, "a-long-random-secret", "at least sixteen bytes, the same everywhere",
	"OUTPUT-OF-openssl-rand-hex-32", "655672aa2f1d8bdb30c8a41b743d983beb7764cd8350b9fed3cf81c9d3bd1b9b",
	"0b9a5e0c6cf76b9d9a0a8cb8e9e1f2b1f9a4d26c1c8e77e2b5e2b7d1f4c3a698"}

// isGuessable reports whether a secret is published, or so short that it can be found by trying.
func isGuessable(secret string) bool {
	return len(secret) < 16 || slices.Contains(publishedSecrets, secret)
}

// weakBits is the estimate below which a secret is called weak. Random text of 16 hexadecimal
// digits has 40 or more by this measure, of 32 digits 80 or more.
const weakBits = 40

// isWeak reports whether a secret does not look random. Random text has at least two of small
// letters, capitals and digits, many different characters, and no runs.
func isWeak(secret string) bool {
	kinds := 0
	for _, kind := range []func(rune) bool{unicode.IsLower, unicode.IsUpper, unicode.IsDigit} {
		if strings.ContainsFunc(secret, kind) {
			kinds++
		}
	}
	return kinds < 2 || randomBits(secret) < weakBits
}

// randomBits estimates the entropy of a text by the frequency of its characters. A character that
// repeats or continues the one before (aa, ab, 21) does not count.
func randomBits(text string) float64 {
	counts, n, last := map[rune]int{}, 0, rune(-2)
	for _, c := range text {
		if step := c - last; step < -1 || step > 1 {
			counts[c]++
			n++
		}
		last = c
	}
	bits := 0.
	for _, k := range counts {
		bits -= float64(k) * math.Log2(float64(k)/float64(n))
	}
	return bits
}
