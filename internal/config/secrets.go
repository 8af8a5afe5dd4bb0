package config

import (
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// secrets reports files with secrets that other accounts may read or write. A file that cannot be
// examined is reported where it is read.
func (k *checker) secrets() {
	keys, first := k.filesWithSecrets()
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		info, err := os.Stat(name)
		if err != nil || info.Mode()&0o077 == 0 {
			continue
		}
		slices.Sort(keys[name])
		k.warnf(first[name], "", "chmod 0600, with the account of the gateway as its owner",
			"%q holds a secret (%s), and its mode %#o is open to other accounts", name,
			strings.Join(keys[name], ", "), info.Mode().Perm())
	}
}

// peerSecretFile is the key of the file with the secret of the fleet.
const peerSecretFile = "peer.secret_file"

// secretFiles reads the files with one secret each, and reports weak secrets.
func (k *checker) secretFiles() {
	const admin, redis, tokens = "gateway.admin_token_file", "redis.password_file", "antisteal.secret_files"
	c := k.c
	for key, files := range map[string][]string{admin: {c.Gateway.AdminTokenFile}, redis: {c.Redis.PasswordFile},
		tokens: c.AntiSteal.SecretFiles, peerSecretFile: {c.Peer.SecretFile}} {
		for _, name := range files {
			if name == "" || !c.usesPath(key) {
				continue
			}
			secret, err := ReadSecretFile(name)
			switch {
			case err != nil:
				k.keyError(key, "put the secret into it, readable for the user of the gateway only", "%v", err)
			case key == peerSecretFile:
				k.judgePeerSecret(key, secret)
			case key != redis && isGuessable(secret):
				k.keyWarning(key, longSecret,
					"the secret in %q is short or well known and can be found by trying", clip(name))
			}
		}
	}
}

// judgePeerSecret reports a secret of the fleet that can be guessed.
func (r *report) judgePeerSecret(key, secret string) {
	if isGuessable(secret) {
		r.keyError(key, longSecret,
			"secret is short or well known: any client that finds it by trying reads every cached file")
	} else if isWeak(secret) {
		r.keyWarning(key, longSecret,
			"secret does not look random: a host that reaches the listener of [peer] or Redis can try secrets")
	}
}

// filesWithSecrets returns the files that hold secrets: the keys of each, and the position of its
// first key.
func (k *checker) filesWithSecrets() (keys map[string][]string, first map[string]position) {
	keys, first = map[string][]string{}, map[string]position{}
	for name, s := range k.c.settings() {
		line, written := k.c.written[name]
		files := []string{line.at.file}
		switch {
		case !written:
			continue
		case s.into.holdsSecret:
			files = nil
			for _, name := range s.into.paths() {
				files = append(files, *name)
			}
		case !s.into.secret || line.value == "":
			continue
		case line.value == stockSecret && !k.c.AntiSteal.CheckToken: // published, and not used
			continue
		}
		for _, file := range files {
			keys[file] = append(keys[file], name)
			if known, ok := first[file]; !ok || line.at.line < known.line {
				first[file] = line.at
			}
		}
	}
	return keys, first
}

// hidden returns f as a field whose value is never shown. A secret may be any text, so comments,
// which the dialect does not have, are a warning.
func hidden(f field) field {
	f.secret = true
	return f.then(func(v string) *parseError {
		if commentBehind.MatchString(v) {
			return questionable("write comments on lines of their own",
				"has a #, which begins no comment here: all of the line is the value")
		}
		return nil
	})
}

// commentBehind matches the beginning of a comment behind a value.
var commentBehind = regexp.MustCompile(`\s#`)

// punctuated returns a warning about a value in quotes, or with a semicolon at its end: other
// formats remove them, the dialect does not.
func punctuated(v string) *parseError {
	switch {
	case len(v) > 1 && v[0] == v[len(v)-1] && (v[0] == '"' || v[0] == '\''):
		return questionable("remove the quotes, unless they belong to the value",
			"has quotes, which are part of it")
	case strings.HasSuffix(v, ";"):
		return questionable("remove the ; at the end, unless it belongs to the value",
			"has a ; at its end, which is part of it")
	}
	return nil
}

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
