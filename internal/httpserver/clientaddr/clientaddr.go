// Package clientaddr finds the address of a client behind trusted proxies, from the fields that
// they add to a request.
//
//	trusted := clientaddr.NewNetworks(prefixes, false)
//	peer := netip.MustParseAddr("10.0.0.2") // of the connection, one of trusted
//	client := clientaddr.ForwardedFor(trusted, peer, lines) // of X-Forwarded-For
//
// Lists are read from the right, where each proxy has added the address of its client. The first
// address that is not of a trusted proxy is the client. So the members that an untrusted client has
// written, which are further left, have no effect. A member that is no address ends the list, and
// the last address before it counts. Without any address the peer is the client.
//
// The caller reads these fields only in requests of trusted proxies.
package clientaddr

import (
	"bytes"
	"net/netip"
	"unsafe"
)

// Method is the way in which proxies name the client: a value of the configuration key
// client_address.
type Method string

// The methods.
const (
	ByForwardedFor  Method = "x-forwarded-for" // see ForwardedFor
	ByRealIP        Method = "x-real-ip"       // see RealIP
	ByForwarded     Method = "forwarded"       // see Forwarded
	ByProxyProtocol Method = "proxy-protocol"  // a header in front of the first request, see proxyproto
)

// Methods lists all methods, the default first.
func Methods() []string {
	return []string{string(ByForwardedFor), string(ByRealIP), string(ByForwarded), string(ByProxyProtocol)}
}

// Proxies are the trusted proxies, and their method. A nil *Proxies trusts no proxy.
type Proxies struct {
	Trusted *Networks
	Method  Method
}

// Trusts reports whether the peer of a connection is a trusted proxy. The zero Addr is that of a
// unix socket.
func (p *Proxies) Trusts(peer netip.Addr) bool { return p != nil && p.Trusted.Contains(peer) }

// ForwardedFor returns the client by the lines of X-Forwarded-For, which are one list. Ports after
// addresses are ignored.
func ForwardedFor(trusted *Networks, peer netip.Addr, lines [][]byte) netip.Addr {
	client := peer
	for member := range fromRight(lines) {
		a, ok := parseAddr(member)
		if !ok {
			break
		}
		if client = a; !trusted.Contains(a) {
			break
		}
	}
	return client
}

// RealIP returns the client by the lines of X-Real-IP, of which the last one counts.
func RealIP(peer netip.Addr, lines [][]byte) netip.Addr {
	if len(lines) == 0 {
		return peer
	}
	if a, ok := parseAddr(trim(lines[len(lines)-1])); ok {
		return a
	}
	return peer
}

// LastOf returns the last member of the comma list in the last line; nil if that is empty. It reads
// X-Forwarded-Proto and X-Forwarded-Host, where the member of the nearest proxy is the last one.
func LastOf(lines [][]byte) []byte {
	if len(lines) == 0 {
		return nil
	}
	line := lines[len(lines)-1]
	return trim(line[bytes.LastIndexByte(line, ',')+1:])
}

// parseAddr parses an address: 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1] or
// [2001:db8::1]:80.
func parseAddr(b []byte) (netip.Addr, bool) {
	if inner, ok := bytes.CutPrefix(b, []byte("[")); ok {
		host, port, closed := bytes.Cut(inner, []byte("]"))
		if !closed || len(port) > 0 && (port[0] != ':' || !isPort(port[1:])) || bytes.IndexByte(host, ':') < 0 {
			return netip.Addr{}, false
		}
		b = host
	} else if host, port, ok := bytes.Cut(b, []byte(":")); ok && bytes.IndexByte(port, ':') < 0 {
		if !isPort(port) {
			return netip.Addr{}, false
		}
		b = host
	}
	if bytes.IndexByte(b, '%') >= 0 { // a zone has a meaning on one host only
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(unsafe.String(unsafe.SliceData(b), len(b))) // keeps no part of its text
	return a.Unmap(), err == nil
}

// isPort reports whether b has 1 to 5 digits, or is an obfuscated port of RFC 7239 section 6.
func isPort(b []byte) bool {
	if len(b) > 1 && b[0] == '_' {
		return true
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0 && len(b) <= 5
}

// trim removes blanks and tabs around a member of a list.
func trim(b []byte) []byte { return bytes.Trim(b, " \t") }
