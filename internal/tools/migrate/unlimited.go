package migrate

import (
	"net/netip"
	"slices"
	"strings"
)

// mappedZone resolves the key of a zone through map and geo blocks. nginx does not count requests
// with an empty key; other differences between clients become findings.
func (t *translator) mappedZone(z *directive, key string) zone {
	if networks, from, ok := t.unlimitedOf(key); ok {
		t.doneAll(from...)
		return zone{z, byAddress, networks, from}
	}
	m := t.mapOf(key)
	if m == nil || !slices.ContainsFunc(m.block, func(line *directive) bool { return isAddress(line.arg(0)) }) {
		return zone{d: z}
	}
	for ; m != nil && !t.handled[m]; m = t.mapOf(m.arg(0)) { // and the map or geo of its source
		t.say(m, "addresses that nginx does not limit are limited like all others",
			"keep nginx in front where the exception matters")
		t.doneAll(m)
	}
	return zone{d: z, by: byAddress}
}

// isAddress reports whether a value is a variable with the address of the client.
func isAddress(value string) bool { return value == "$binary_remote_addr" || value == "$remote_addr" }

// mapOf returns the map or geo block of a variable, or nil.
func (t *translator) mapOf(variable string) *directive {
	for _, d := range named(t.http, "map", "geo") {
		if variable != "" && d.arg(len(d.args)-1) == variable {
			return d
		}
	}
	return nil
}

// networkValue is the value of a variable for the clients of a network. The smallest network wins.
type networkValue struct {
	network netip.Prefix
	value   string
}

// Bounds of the map and geo blocks that are resolved.
const (
	maxMaps     = 4    // in a chain
	maxNetworks = 128  // of a geo
	maxList     = 2000 // characters of a list
)

// unlimitedOf returns the networks for which a key is empty; ok is false unless the key is the
// address for all others.
func (t *translator) unlimitedOf(key string) (networks string, from []*directive, ok bool) {
	values, from, ok := t.byNetwork(key, maxMaps)
	if !ok || len(values) > maxNetworks {
		return "", nil, false
	}
	var empty []netip.Prefix
	for _, v := range values {
		var inner []netip.Prefix // smaller networks with the limit
		for _, other := range values {
			if other.value != "" && other.network.Bits() > v.network.Bits() && other.network.Overlaps(v.network) {
				inner = append(inner, other.network)
			}
		}
		if v.value == "" {
			empty = append(empty, subtract([]netip.Prefix{v.network}, inner)...)
		}
		if v.value != "" && !isAddress(v.value) || len(empty) > maxNetworks {
			return "", nil, false
		}
	}
	networks = list(empty)
	return networks, from, len(networks) <= maxList
}

// byNetwork returns the values of a variable by the network of the client, and the blocks that
// define them; ok is false if the variable depends on anything else.
func (t *translator) byNetwork(variable string, maps int) (values []networkValue, from []*directive, ok bool) {
	d := t.mapOf(variable)
	if d == nil || maps == 0 {
		return nil, nil, false
	}
	if d.name == "geo" && len(d.args) == 1 || d.arg(0) == "$remote_addr" {
		values, ok = networkValues(d)
		return values, []*directive{d}, ok
	}
	values, from, ok = t.byNetwork(d.arg(0), maps-1)
	for i := range values {
		if values[i].value, ok = mapped(d, values[i].value); !ok {
			break
		}
	}
	return values, append(from, d), ok && d.name == "map"
}

// networkValues returns the values of a geo, or of a map of addresses; ok is false if the block has
// anything but networks.
func networkValues(d *directive) (values []networkValue, ok bool) {
	others := "" // of clients in no network
	for _, line := range d.block {
		if line.name == "default" && len(line.args) == 1 {
			others = line.arg(0)
			continue
		}
		networks, ok := networksOf(line.name)
		if !ok || line.name == "all" || len(line.args) != 1 || d.name == "map" && strings.Contains(line.name, "/") {
			return nil, false
		}
		values = append(values, networkValue{networks[0], line.arg(0)})
	}
	all, _ := networksOf("all")
	for _, network := range all {
		if !slices.ContainsFunc(values, func(v networkValue) bool { return v.network == network }) {
			values = append(values, networkValue{network, others})
		}
	}
	return values, true
}

// mapped returns the result of a map for a value; ok is false if the map has an expression or an
// include.
func mapped(m *directive, value string) (result string, ok bool) {
	found := false
	for _, line := range m.block {
		switch {
		case len(line.args) != 1 || line.name == "include" || strings.HasPrefix(line.name, "~"):
			return "", false
		case strings.EqualFold(line.name, value):
			result, found = line.arg(0), true
		case line.name == "default" && !found:
			result = line.arg(0)
		}
	}
	return result, true
}

// translateUnlimited writes the networks without limits. If connections are limited, [access] has
// the networks of that limit, and sections for all groups have the other networks of the limit of
// requests.
func (t *translator) translateUnlimited(connections string, requests map[cell]string) {
	networks := map[cell]string{}
	for c, v := range requests {
		if v != "" {
			networks[c] = part(v, 2)
		}
	}
	choices := t.universe.spread(networks)
	if connections != "" {
		kept := []choice{{value: part(connections, 1)}}
		for _, c := range choices {
			if c.forAll() && c.value != kept[0].value {
				for _, g := range t.universe.groups[:len(t.universe.groups)-1] {
					c.places = append(c.places, g+"/")
				}
			}
			overlaps := func(earlier choice) bool { return t.universe.overlap(earlier, c) }
			if !c.forAll() && (c.value != kept[0].value || slices.ContainsFunc(kept[1:], overlaps)) {
				kept = append(kept, c)
			}
		}
		choices = kept
	}
	from := map[string][]*directive{}
	for _, kind := range []string{"limit_req_zone", "limit_conn_zone"} {
		for _, d := range named(t.http, kind) {
			if name, _, _ := strings.Cut(d.option("zone"), ":"); t.handled[d] {
				if z := t.zone(kind, name); z.by == byAddress && from[z.unlimited] == nil {
					from[z.unlimited] = z.from
				}
			}
		}
	}
	t.writeChoices("access", choices, from, "unlimited")
}
