package clientaddr

import (
	"bytes"
	"iter"
	"net/netip"
)

// Forwarded returns the client by the lines of Forwarded (RFC 7239), which are one list, and the
// proto and host of the element that names the client; nil if absent. Identifiers that are no
// addresses ("unknown", "_hidden") end the list.
func Forwarded(trusted *Networks, peer netip.Addr, lines [][]byte) (client netip.Addr, proto, host []byte) {
	client = peer
	for text := range fromRight(lines) {
		e, ok := parseElement(text)
		if !ok {
			break
		}
		if client, proto, host = e.node, e.proto, e.host; !trusted.Contains(client) {
			break
		}
	}
	return client, proto, host
}

// fromRight yields the members of lines, which are one list, from the last one to the first,
// without empty ones (RFC 9110 section 5.6.1.2).
func fromRight(lines [][]byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := len(lines) - 1; i >= 0; i-- {
			for rest, more := lines[i], true; more; {
				var member []byte
				member, rest, more = cutLast(rest)
				if member = trim(member); len(member) > 0 && !yield(member) {
					return
				}
			}
		}
	}
}

// cutLast cuts the last element off a list. A quoted comma does not separate elements. The search
// begins at the right, so an open quote of an untrusted client cannot hide the elements that
// proxies have added after it. An escaped quote counts as a quote: parseElement rejects each
// element that has one, and no address has a quote.
func cutLast(list []byte) (last, rest []byte, more bool) {
	quoted := false
	for i := len(list) - 1; i >= 0; i-- {
		switch {
		case list[i] == '"':
			quoted = !quoted
		case list[i] == ',' && !quoted:
			return list[i+1:], list[:i], true
		}
	}
	return list, nil, false
}

// element is a forwarded-element with the address of its for parameter.
type element struct {
	node        netip.Addr
	proto, host []byte
}

// parseElement parses name=value pairs with semicolons between them. for, proto and host may occur
// once each. The element must have an address.
func parseElement(text []byte) (e element, ok bool) {
	var node []byte
	for more := true; more; {
		var name, value []byte
		if name, value, text, more, ok = cutPair(text); !ok {
			return element{}, false
		}
		var field *[]byte
		switch {
		case bytes.EqualFold(name, []byte("for")):
			field = &node
		case bytes.EqualFold(name, []byte("proto")):
			field = &e.proto
		case bytes.EqualFold(name, []byte("host")):
			field = &e.host
		default:
			continue
		}
		if *field != nil {
			return element{}, false
		}
		*field = value
	}
	e.node, ok = parseAddr(node)
	return e, ok
}

// cutPair cuts the first pair off an element. A value is a token or a quoted string. ok is false
// for a string with escapes, since no address, scheme or host needs them.
func cutPair(text []byte) (name, value, rest []byte, more, ok bool) {
	name, rest, ok = bytes.Cut(text, []byte("="))
	if !ok {
		return nil, nil, nil, false, false
	}
	if quoted, isQuoted := bytes.CutPrefix(rest, []byte(`"`)); isQuoted {
		if value, rest, ok = bytes.Cut(quoted, []byte(`"`)); !ok || bytes.IndexByte(value, '\\') >= 0 {
			return nil, nil, nil, false, false
		}
		rest = trim(rest)
		if len(rest) > 0 && rest[0] != ';' {
			return nil, nil, nil, false, false
		}
		if more = len(rest) > 0; more {
			rest = rest[1:]
		}
		return trim(name), value, rest, more, true
	}
	value, rest, more = bytes.Cut(rest, []byte(";"))
	return trim(name), trim(value), rest, more, bytes.IndexByte(value, '"') < 0
}
