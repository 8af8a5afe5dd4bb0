package gateway

import "bytes"

// masked replaces the value of a token.
const masked = "***"

// appendMasked appends a request target, a request line or a URL with the values of token
// parameters replaced, also of those with an escaped name. Without a token it appends nothing, and
// shown is text.
func appendMasked(dst, text []byte) (grown, shown []byte) {
	query := bytes.IndexByte(text, '?')
	if query < 0 {
		return dst, text
	}
	start, copied := len(dst), 0
	for from := query + 1; from < len(text); {
		end := len(text)
		if n := bytes.IndexAny(text[from:], "&# "); n >= 0 { // a blank ends the target of a request line
			end = from + n
		}
		if name, value, ok := bytes.Cut(text[from:end], []byte{'='}); ok && isTokenName(name) {
			dst = append(append(dst, text[copied:from+len(name)+1]...), masked...)
			copied = from + len(name) + 1 + len(value)
		}
		from = end + 1
	}
	if copied == 0 {
		return dst, text
	}
	dst = append(dst, text[copied:]...)
	return dst, dst[start:]
}

// isTokenName reports whether target.parseQuery reads the name as token.
func isTokenName(name []byte) bool {
	const token = "token"
	if len(name) > 3*len(token) {
		return false
	}
	var room [3 * len(token)]byte
	decoded, _ := appendDecoded(room[:0], name, true)
	return string(decoded) == token
}
