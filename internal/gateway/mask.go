package gateway

import "bytes"

// masked stands for the value of a token.
const masked = "***"

// appendMasked appends text, a request target, a request line or a URL, with the values of its
// query's token parameters replaced, however their name is escaped. It returns text itself, and dst
// as it was, where there is nothing to replace.
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

// isTokenName tells whether a name stands for the token, as target.parseQuery reads it.
func isTokenName(name []byte) bool {
	const token = "token"
	if len(name) > 3*len(token) {
		return false
	}
	var room [3 * len(token)]byte
	decoded, _ := appendDecoded(room[:0], name, true)
	return string(decoded) == token
}
