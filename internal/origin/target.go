package origin

import (
	"bytes"
	"net/url"
	"strings"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/fdfs"
)

// Targets builds the request targets of files, at this gateway and at the web servers of other
// hosts.
type Targets struct {
	Prefix string             // in front of the path, such as "/files"
	Group  bool               // the path begins with the group
	Tokens *antisteal.Checker // makes the tokens of Fetch; nil = none
}

// AppendPath appends the path of a file.
func (t *Targets) AppendPath(dst []byte, id fdfs.FileID) []byte {
	dst = append(appendEscaped(dst, []byte(strings.TrimRight(t.Prefix, "/"))), '/')
	if t.Group {
		return id.AppendTo(dst)
	}
	return append(dst, id.Logic...)
}

// Fetch returns the target of the request that fetches a file: the path of the parsed id, a token,
// and redirect=1, which keeps the next server from sending the request on. The spelling of the path
// by the client is never passed on. A gateway that checks tokens adds a new one, which is valid
// now. A gateway that does not check them passes on the token of the client; nil = none, for the
// cache.
func (t *Targets) Fetch(id fdfs.FileID, token, timestamp []byte, now time.Time) string {
	target := append(t.AppendPath(nil, id), '?')
	switch {
	case t.Tokens != nil:
		target = append(append(target, t.Tokens.Query(id.Logic, now)...), '&')
	case len(token) > 0:
		target = append(append(target, "token="...), url.QueryEscape(string(token))...)
		target = append(append(append(target, "&ts="...), url.QueryEscape(string(timestamp))...), '&')
	}
	return string(append(target, "redirect=1"...))
}

// AppendRedirect appends the target that a client is redirected to: the path of the parsed id, and
// the query of the client, in which redirect=1 is the only parameter of that name.
func (t *Targets) AppendRedirect(dst []byte, id fdfs.FileID, query []byte) []byte {
	return appendRedirected(append(t.AppendPath(dst, id), '?'), query)
}

// appendRedirected appends a query with redirect=1. Bytes that no URL may contain are escaped.
func appendRedirected(dst, query []byte) []byte {
	for more := len(query) > 0; more; {
		var pair []byte
		pair, query, more = bytes.Cut(query, []byte{'&'})
		name, _, _ := bytes.Cut(pair, []byte{'='})
		if decoded, err := url.QueryUnescape(string(name)); err == nil && decoded == "redirect" {
			continue
		}
		dst = append(appendEscaped(dst, pair), '&')
	}
	return append(dst, "redirect=1"...)
}

// appendEscaped appends text, and escapes the bytes that a URL may not contain (RFC 3986 section
// 2). Escapes in the text stay.
func appendEscaped(dst, text []byte) []byte {
	const upperHex = "0123456789ABCDEF"
	for _, c := range text {
		if c <= ' ' || c >= 0x7f || bytes.IndexByte([]byte("\"<>\\^`{|}#"), c) >= 0 {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
			continue
		}
		dst = append(dst, c)
	}
	return dst
}
