package migrate

import (
	"net/netip"
	"strings"
)

// access is the set of networks that may read files.
type access struct {
	allow, deny []netip.Prefix
	closed      bool // all but allow are denied
	unreadable  bool // a rule is for something else than an address
}

// accessOf translates the rules allow and deny: in nginx the first matching rule wins, in the
// gateway deny wins.
func accessOf(rules []*directive) (a access) {
	var before []netip.Prefix // networks of earlier rules
	for _, d := range rules {
		networks, ok := networksOf(d.arg(0))
		if !ok {
			a.unreadable = true
			continue
		}
		rest := subtract(networks, before)
		if d.name == "allow" {
			a.allow = append(a.allow, rest...)
		} else {
			a.deny = append(a.deny, rest...)
		}
		before = append(before, networks...)
		if d.arg(0) == "all" {
			if a.closed = d.name == "deny"; a.closed {
				a.deny = nil // all others are denied anyway
			} else {
				a.allow = nil
			}
			return a
		}
	}
	a.allow = nil // without "deny all", other clients may read files as well
	return a
}
func networksOf(v string) ([]netip.Prefix, bool) {
	if v == "all" {
		return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, true
	}
	if p, err := netip.ParsePrefix(v); err == nil {
		return []netip.Prefix{p.Masked()}, true
	}
	if a, err := netip.ParseAddr(v); err == nil {
		return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}, true
	}
	return nil, false
}

// subtract returns the part of networks that is in none of the others.
func subtract(networks, others []netip.Prefix) []netip.Prefix {
	for _, o := range others {
		var left []netip.Prefix
		for _, n := range networks {
			left = append(left, without(n, o)...)
		}
		networks = left
	}
	return networks
}

func without(n, o netip.Prefix) []netip.Prefix {
	switch {
	case !n.Overlaps(o):
		return []netip.Prefix{n}
	case o.Bits() <= n.Bits():
		return nil
	}
	low := netip.PrefixFrom(n.Addr(), n.Bits()+1)
	bytes := n.Addr().AsSlice()
	bytes[n.Bits()/8] |= 0x80 >> (n.Bits() % 8)
	addr, _ := netip.AddrFromSlice(bytes)
	return append(without(low, o), without(netip.PrefixFrom(addr, n.Bits()+1), o)...)
}

// list returns networks as text; a network of one address is written as the address.
func list(networks []netip.Prefix) string {
	texts := make([]string, len(networks))
	for i, n := range networks {
		if texts[i] = n.String(); n.IsSingleIP() {
			texts[i] = n.Addr().String()
		}
	}
	return strings.Join(texts, ", ")
}
