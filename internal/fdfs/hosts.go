package fdfs

import (
	"net/netip"
	"strconv"
	"strings"
)

// maxHost bounds the length of a host name in characters.
const maxHost = 253

// ParseHosts parses the address of a tracker or a storage, which may have two interfaces:
// host[:port], a,b[:port] or [a,b]:port. A host is a name or an IP address; an IPv6 address with a
// port is in brackets. The port is 0 if there is none.
func ParseHosts(s string) (hosts []string, port int, ok bool) {
	list, text := s, "" // text is the port with its colon
	if inner, bracketed := strings.CutPrefix(s, "["); bracketed {
		end := strings.IndexByte(inner, ']')
		if end < 0 || end+1 < len(inner) && inner[end+1] != ':' {
			return nil, 0, false
		}
		list, text = inner[:end], inner[end+1:]
	} else if _, err := netip.ParseAddr(strings.TrimSpace(s[strings.LastIndexByte(s, ',')+1:])); err != nil {
		// Without brackets, only an IPv6 address has colons without a port.
		if colon := strings.LastIndexByte(s, ':'); colon >= 0 {
			list, text = s[:colon], s[colon:]
		}
	}
	if text != "" {
		n, err := strconv.ParseUint(text[1:], 10, 16)
		if err != nil || n == 0 {
			return nil, 0, false
		}
		port = int(n)
	}
	hosts = strings.Split(list, ",")
	if len(hosts) > 2 {
		return nil, 0, false
	}
	for i, h := range hosts {
		if hosts[i] = strings.TrimSpace(h); !ValidHost(hosts[i]) {
			return nil, 0, false
		}
	}
	return hosts, port, true
}

// ValidHost reports whether s is an IP address, possibly with a zone, or a host name of at most 253
// characters, of which one is no digit.
func ValidHost(s string) bool {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Zone() == "" || ValidHost(addr.Zone())
	}
	if s == "" || len(s) > maxHost || s[0] == '-' || s[0] == '.' {
		return false
	}
	if strings.Trim(s, "0123456789.") == "" { // an address that does not parse, such as 10.0.0.300
		return false
	}
	for i := range len(s) {
		if class[s[i]]&isNameChar == 0 {
			return false
		}
	}
	return true
}

// parseAddr parses the address of a server in a reply. It rejects zones, which are valid on one
// host only.
func parseAddr(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}
