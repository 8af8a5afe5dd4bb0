package clientaddr

import (
	"net/netip"
	"slices"
)

// Networks is an immutable set of networks. nil is the empty set.
type Networks struct {
	unix  bool
	spans []span // sorted, without overlaps
}

// span is a range of addresses of one family, both ends included.
type span struct{ first, last netip.Addr }

// NewNetworks returns the set of these networks. With unix the set also has the clients of unix
// sockets, which have no address.
func NewNetworks(prefixes []netip.Prefix, unix bool) *Networks {
	n := &Networks{unix: unix}
	for _, p := range prefixes {
		n.spans = append(n.spans, spanOf(p))
	}
	slices.SortFunc(n.spans, func(a, b span) int { return a.first.Compare(b.first) })
	joined := n.spans[:0]
	for _, s := range n.spans {
		if last := len(joined) - 1; last >= 0 && s.first.Compare(joined[last].last) <= 0 {
			if joined[last].last.Less(s.last) {
				joined[last].last = s.last
			}
			continue
		}
		joined = append(joined, s)
	}
	n.spans = joined
	return n
}

// spanOf returns the addresses of a network. Those of IPv4-mapped addresses become IPv4 addresses.
func spanOf(p netip.Prefix) span {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	p = p.Masked()
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(b); bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return span{p.Addr(), last}
}

// Contains reports whether the set has an address. The zero Addr is that of a client of a unix
// socket.
func (n *Networks) Contains(a netip.Addr) bool {
	switch {
	case n == nil:
		return false
	case !a.IsValid():
		return n.unix
	}
	a = a.Unmap().WithZone("")
	i, found := slices.BinarySearchFunc(n.spans, a, func(s span, a netip.Addr) int { return s.first.Compare(a) })
	return found || i > 0 && a.Compare(n.spans[i-1].last) <= 0
}

// HasAll reports whether the set was made of the networks of all addresses, with unix.
func (n *Networks) HasAll() bool {
	if n == nil || !n.unix {
		return false
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		if !slices.Contains(n.spans, spanOf(netip.MustParsePrefix(all))) {
			return false
		}
	}
	return true
}

// Block returns the unit of limits per address: an IPv6 /64, since one customer has a whole /64, or
// an IPv4 address.
func Block(ip netip.Addr) netip.Addr {
	if !ip.Is6() || ip.IsLoopback() {
		return ip
	}
	block, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return ip
	}
	return block.Addr()
}
