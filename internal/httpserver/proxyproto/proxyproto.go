// Package proxyproto reads the header of the PROXY protocol, versions 1 and 2, with which a proxy
// names the address of its client in front of the first byte of a connection:
//
//	header, err := proxyproto.Read(conn) // before TLS, before HTTP
//	client := header.Source              // invalid: no client, or one without an IP address
//
// Version 1 is a line of at most 107 bytes, in which UNKNOWN names no client:
//
//	PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n
//
// Version 2 is binary:
//
//	offset  bytes  field
//	0       12     signature: \r\n\r\n\0\r\nQUIT\n
//	12      1      version 2 in the upper half; command 0 LOCAL (no client) or 1 PROXY in the lower
//	13      1      family (1 IPv4, 2 IPv6, 3 unix, 0 unspecified), and transport (1 stream, 2 datagram)
//	14      2      length of the rest, big endian
//	16             source and destination address, then source and destination port
//	               (unix: two paths of 108 bytes); then TLVs: 1 byte type, 2 bytes length, and
//	               the value; of type 0x20, the first bit of the value is set for a client of TLS.
//	               Other TLVs are skipped
package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// ErrHeader is the error of a connection that does not begin with a valid header.
var ErrHeader = errors.New("no PROXY protocol header")

// Header is the content of a header.
type Header struct {
	// Source is the address of the client. It is invalid for a header without a client (LOCAL,
	// UNKNOWN), which a proxy sends for itself, and for a client without an IP address.
	Source netip.AddrPort
	// Proxied is false for a header without a client.
	Proxied bool
	// TLS is true for a client that is connected to the proxy by TLS. Only version 2 sets it.
	TLS bool
}

const (
	maxLine   = 107          // bytes of a version 1 header
	minLine   = len(unknown) // of the shortest one
	unknown   = "PROXY UNKNOWN\r\n"
	linePart  = "PROXY "
	signature = "\r\n\r\n\x00\r\nQUIT\n"
	fixed     = 16      // bytes of a version 2 header before the addresses
	maxRest   = 4 << 10 // bytes of addresses and TLVs; proxies send a few hundred
)

// Read reads a header and no byte after it, also from a r that returns it in pieces. The error is
// ErrHeader as soon as the bytes cannot be a header, or when they end early; it is that of r if no
// byte has arrived.
func Read(r io.Reader) (Header, error) {
	b := make([]byte, 0, maxLine)
	for {
		h, missing, err := parse(b)
		if err != nil || missing == 0 {
			return h, err
		}
		if cap(b)-len(b) < missing {
			b = append(make([]byte, 0, len(b)+missing), b...)
		}
		n, err := r.Read(b[len(b) : len(b)+missing])
		if b = b[:len(b)+n]; n == 0 && err != nil {
			if len(b) > 0 {
				return Header{}, fmt.Errorf("%w: it ends after %d bytes: %w", ErrHeader, len(b), err)
			}
			return Header{}, err
		}
	}
}

// parse parses the bytes of a header that have arrived. missing is the number of bytes that are
// certain to follow in the header, so that Read reads no byte after it; 0 = the header is complete.
func parse(b []byte) (h Header, missing int, err error) {
	switch {
	case len(b) > 0 && hasStart(b, signature):
		return parseBinary(b)
	case hasStart(b, linePart):
		return parseLine(b)
	}
	return Header{}, 0, ErrHeader
}

// hasStart reports whether b begins with start, or start with b.
func hasStart(b []byte, start string) bool {
	n := min(len(b), len(start))
	return string(b[:n]) == start[:n]
}

// parseLine is parse for version 1.
func parseLine(b []byte) (h Header, missing int, err error) {
	line, ended := bytes.CutSuffix(b, []byte("\r\n"))
	switch {
	case bytes.IndexByte(line, '\n') >= 0 || !ended && len(b) >= maxLine:
		return h, 0, fmt.Errorf("%w: a line without an end", ErrHeader)
	case ended:
		h, err = parseFields(string(line))
		return h, 0, err
	case len(b) < minLine:
		return h, minLine - len(b), nil
	case b[len(b)-1] == '\r' || len(b) == maxLine-1:
		return h, 1, nil
	}
	return h, 2, nil
}

// parseFields parses a line without its end.
func parseFields(line string) (h Header, err error) {
	f := strings.Split(line, " ")
	if len(f) > 1 && f[1] == "UNKNOWN" { // the rest of the line must be ignored
		return h, nil
	}
	if len(f) != 6 || f[1] != "TCP4" && f[1] != "TCP6" {
		return h, fmt.Errorf("%w: a line of unknown form", ErrHeader)
	}
	source, ok := parseEnd(f[2], f[4], f[1] == "TCP4")
	if _, toOK := parseEnd(f[3], f[5], f[1] == "TCP4"); !ok || !toOK {
		return h, fmt.Errorf("%w: an invalid address", ErrHeader)
	}
	return Header{Source: source, Proxied: true}, nil
}

// parseEnd parses the address and port of one end of a connection.
func parseEnd(address, port string, v4 bool) (end netip.AddrPort, ok bool) {
	a, err := netip.ParseAddr(address)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || a.Zone() != "" || a.Is4() != v4 {
		return end, false
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), true
}

// Values of version 2.
const (
	version       = 0x2
	commandLocal  = 0x0
	commandProxy  = 0x1
	familyIPv4    = 0x1
	familyIPv6    = 0x2
	familyUnix    = 0x3
	maxTransport  = 0x2
	sizeIPv4      = 2*4 + 2*2 // bytes of the addresses and ports
	sizeIPv6      = 2*16 + 2*2
	sizeUnix      = 2 * 108
	portOffsetV4  = 2 * 4
	portOffsetV6  = 2 * 16
	lengthOffset  = 14
	addressOffset = fixed
	typeTLS       = 0x20 // PP2_TYPE_SSL
	clientTLS     = 0x01 // PP2_CLIENT_SSL, in the first byte of the value of typeTLS
)

// parseBinary is parse for version 2.
func parseBinary(b []byte) (h Header, missing int, err error) {
	if len(b) < fixed {
		return h, fixed - len(b), nil
	}
	rest := int(binary.BigEndian.Uint16(b[lengthOffset:]))
	command, family, transport := b[12]&0xf, b[13]>>4, b[13]&0xf
	switch {
	case b[12]>>4 != version || command > commandProxy || family > familyUnix || transport > maxTransport:
		return h, 0, fmt.Errorf("%w: unknown version, command or family", ErrHeader)
	case rest > maxRest:
		return h, 0, fmt.Errorf("%w: it has %d bytes", ErrHeader, rest)
	case len(b) < fixed+rest:
		return h, fixed + rest - len(b), nil
	case command == commandLocal:
		return h, 0, nil
	}
	h, err = parseAddresses(b[addressOffset:fixed+rest], family)
	return h, 0, err
}

// parseAddresses reads the source from the addresses of a family, and TLS from the TLVs after them.
func parseAddresses(b []byte, family byte) (h Header, err error) {
	size := [...]int{familyIPv4: sizeIPv4, familyIPv6: sizeIPv6, familyUnix: sizeUnix}[family]
	if len(b) < size {
		return h, fmt.Errorf("%w: %d bytes of addresses", ErrHeader, len(b))
	}
	switch family {
	case familyIPv4:
		h.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), binary.BigEndian.Uint16(b[portOffsetV4:]))
	case familyIPv6:
		h.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)).Unmap(), binary.BigEndian.Uint16(b[portOffsetV6:]))
	}
	h.Proxied = family != 0 // an unspecified family names no client
	h.TLS = h.Proxied && hasTLS(b[size:])
	return h, nil
}

// hasTLS reports whether the TLVs describe a client of TLS. An incomplete TLV ends them.
func hasTLS(tlvs []byte) bool {
	for len(tlvs) >= 3 {
		kind, size := tlvs[0], int(binary.BigEndian.Uint16(tlvs[1:]))
		if tlvs = tlvs[3:]; len(tlvs) < size {
			return false
		}
		if kind == typeTLS && size > 0 {
			return tlvs[0]&clientTLS != 0
		}
		tlvs = tlvs[size:]
	}
	return false
}
