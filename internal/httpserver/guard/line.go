package guard

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strconv"
)

// targetForm is one of the four forms of a request target (RFC 9112 section 3.2).
type targetForm uint8

const (
	originForm    targetForm = iota // "/path?query"
	absoluteForm                    // "http://host/path?query"
	authorityForm                   // "host:port", CONNECT only
	asteriskForm                    // "*", OPTIONS only
)

// requestLine parses the request line (RFC 9112 section 3). It is the first line of the head, so
// offsets in the line are offsets in the head:
//
//	method SP target SP "HTTP/" DIGIT "." DIGIT
//
// Exactly one blank stands between the parts.
func (h *head) requestLine(line []byte) error {
	m := bytes.IndexByte(line, ' ')
	if m < 0 {
		return badRequest("request line without a target")
	}
	for _, ch := range line[:m] {
		if !isToken[ch] {
			return badRequest("invalid character in the method")
		}
	}
	t := bytes.LastIndexByte(line, ' ')
	if t == m {
		return badRequest("request line without a version")
	}
	target := line[m+1 : t]
	if len(target) > maxTarget {
		return &Error{Status: 414, Reason: "request target is too long"}
	}
	if err := h.version(line[t+1:]); err != nil {
		return err
	}
	if m > maxMethod {
		return &Error{Status: 501, Reason: "method is too long"}
	}
	if err := checkTarget(target); err != nil {
		return err
	}
	h.headMethod, h.connect = string(line[:m]) == "HEAD", string(line[:m]) == "CONNECT"
	h.targetStart, h.targetEnd = m+1, t
	return h.target(line[:m], target)
}

// version checks the last part of a request line (RFC 9112 section 2.3). A minor version above 1 is
// read as 1 (RFC 9110 section 2.5).
func (h *head) version(v []byte) error {
	if len(v) != len("HTTP/1.1") || string(v[:5]) != "HTTP/" || !isDigit(v[5]) || v[6] != '.' || !isDigit(v[7]) {
		return badRequest("request line does not end in a version such as HTTP/1.1")
	}
	if v[5] != '1' {
		return &Error{Status: 505, Reason: "HTTP version is not supported"}
	}
	h.http10 = v[7] == '0'
	h.rewrite = h.rewrite || v[7] > '1'
	return nil
}

// checkTarget rejects blanks and control characters. Bytes of 0x80 and above are not allowed in a
// URI either. They pass, since clients send file names in queries unescaped, and all parsers read
// such bytes alike.
func checkTarget(target []byte) error {
	if len(target) == 0 {
		return badRequest("empty request target")
	}
	for rest := target; len(rest) > 0; {
		if len(rest) >= 8 && !anyBelow(binary.LittleEndian.Uint64(rest), ' '+1) {
			rest = rest[8:]
			continue
		}
		if rest[0] <= ' ' || rest[0] == 0x7f {
			return badRequest("blank or control character in the request target")
		}
		rest = rest[1:]
	}
	return nil
}

// target sets the form of the target, and rewrite if it cannot be passed on unchanged.
func (h *head) target(method, target []byte) error {
	switch {
	case target[0] == '/':
		h.cutTarget(target)
		return nil
	case h.connect:
		h.form = authorityForm
		return validateAuthority(target)
	case len(target) == 1 && target[0] == '*':
		h.form = asteriskForm
		if string(method) != "OPTIONS" {
			return badRequest("target * is for OPTIONS only")
		}
		return nil
	case hasSchemeHTTP(target):
		return h.absolute(target)
	}
	return badRequest("request target is neither a path nor an http URI")
}

// cutTarget removes the fragment of an origin-form target, which some clients send and nginx drops
// too, and all leading slashes but one: a server could read an authority behind two of them.
func (h *head) cutTarget(target []byte) {
	if i := bytes.IndexByte(target, '#'); i >= 0 {
		h.targetEnd = h.targetStart + i
		h.rewrite = true
		target = target[:i]
	}
	for len(target) > 1 && target[0] == '/' && target[1] == '/' {
		h.targetStart++
		h.rewrite = true
		target = target[1:]
	}
}

// absolute parses an absolute-form target (RFC 9112 section 3.2.2). Its path and query are passed
// on, and its authority as Host.
func (h *head) absolute(target []byte) error {
	h.form = absoluteForm
	h.rewrite = true
	start := bytes.IndexByte(target, ':') + len("://")
	end := len(target)
	if i := bytes.IndexAny(target[start:], "/?#"); i >= 0 {
		end = start + i
	}
	if err := validateHost(target[start:end]); err != nil {
		return err
	}
	h.authority = [2]int{h.targetStart + start, h.targetStart + end}
	h.targetStart += end
	if rest := target[end:]; len(rest) > 0 {
		h.cutTarget(rest)
	}
	return nil
}

// appendTarget appends the target in canonical form.
func (h *head) appendTarget(dst, b []byte) []byte {
	target := b[h.targetStart:h.targetEnd]
	if h.form == absoluteForm && (len(target) == 0 || target[0] != '/') {
		if len(target) == 0 && bytes.HasPrefix(b, []byte("OPTIONS ")) {
			return append(dst, '*') // RFC 9112 section 3.2.4
		}
		dst = append(dst, '/')
	}
	return append(dst, target...)
}

// hasSchemeHTTP reports whether target begins with "http://" or "https://".
func hasSchemeHTTP(target []byte) bool {
	scheme, rest, ok := bytes.Cut(target, []byte{':'})
	return ok && bytes.HasPrefix(rest, []byte("//")) &&
		(equalFold(scheme, "http") || equalFold(scheme, "https"))
}

// validateAuthority checks the target of CONNECT, which must name a port (RFC 9112 section 3.2.3).
func validateAuthority(b []byte) error {
	if n := len(b); !isDigit(b[n-1]) || bytes.IndexByte(b, ':') < 0 {
		return badRequest("target of CONNECT is not host:port")
	}
	return validateHost(b)
}

// ValidHost reports whether b may be a Host field, with a name of at most 255 bytes (RFC 1035
// section 3.1).
func ValidHost(b []byte) bool { return len(b) <= 255+len(":65535") && validateHost(b) == nil }

// validateHost checks host [":" port] (RFC 9110 section 7.2). An empty host is rejected: no http
// URI has one (RFC 9110 section 4.2.1).
func validateHost(b []byte) error {
	var host, port []byte
	if len(b) > 0 && b[0] == '[' {
		end := bytes.IndexByte(b, ']')
		if end < 0 || !validIPv6(b[1:end]) {
			return badRequest("invalid IPv6 address in the host")
		}
		host, port = b[:end+1], b[end+1:]
	} else {
		host = b
		if colon := bytes.IndexByte(b, ':'); colon >= 0 {
			host, port = b[:colon], b[colon:]
		}
		if !validName(host) {
			return badRequest("invalid character in the host")
		}
	}
	if len(host) == 0 {
		return badRequest("empty host")
	}
	if !validPort(port) {
		return badRequest("invalid port in the host")
	}
	return nil
}

// validName reports whether b is a registered name (RFC 3986 section 3.2.2). A comma makes a name
// invalid, because a list of hosts looks like one name with a comma. So does a percent-encoded
// character of ASCII, which would be a second spelling of a name.
func validName(b []byte) bool {
	for i := 0; i < len(b); i++ {
		ch := b[i]
		switch {
		case isName[ch]:
		case ch == '%' && i+2 < len(b) && unhex(b[i+1]) >= 8 && unhex(b[i+2]) >= 0:
			i += 2
		default:
			return false
		}
	}
	return true
}

// isName marks the characters that validName accepts without encoding.
var isName = charSet("-._~!$&'()*+;=")

// validPort reports whether b may follow a host: it is empty, or a colon and a number of at most
// 65535, which may be missing (RFC 3986 section 3.2.3).
func validPort(b []byte) bool {
	if len(b) == 0 || string(b) == ":" {
		return true
	}
	_, err := strconv.ParseUint(string(b[1:]), 10, 16)
	return b[0] == ':' && err == nil
}

// validIPv6 reports whether b is the inside of an IPv6 literal. "%25" begins a zone (RFC 6874).
func validIPv6(b []byte) bool {
	const longest = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
	addr, zone, hasZone := bytes.Cut(b, []byte("%25"))
	if len(addr) > longest || (hasZone && len(zone) == 0) {
		return false
	}
	for _, ch := range zone {
		if !isAlnum(ch) && bytes.IndexByte([]byte("-._~"), ch) < 0 {
			return false
		}
	}
	ip, err := netip.ParseAddr(string(addr))
	return err == nil && ip.Is6() && ip.Zone() == ""
}

func isDigit(ch byte) bool { return '0' <= ch && ch <= '9' }

func isAlnum(ch byte) bool {
	return isDigit(ch) || ('a' <= ch|0x20 && ch|0x20 <= 'z')
}

// unhex returns the value of a hexadecimal digit, or -1.
func unhex(ch byte) int {
	switch {
	case isDigit(ch):
		return int(ch - '0')
	case 'a' <= ch|0x20 && ch|0x20 <= 'f':
		return int(ch|0x20-'a') + 10
	}
	return -1
}
