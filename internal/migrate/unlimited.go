package migrate

import (
	"net/netip"
	"slices"
	"strings"
)

// mappedZone follows the key of a zone through map and geo blocks. Where the key is empty nginx
// counts nothing; other differences between clients are findings.
func (t *translator) mappedZone(z *directive, key string) zone {
	if networks, from, ok := t.unlimitedOf(key); ok {
		t.doneAll(from...)
		return zone{z, byAddress, networks, from}
	}
	for _, m := range named(t.http, "map", "geo") {
		if m.arg(len(m.args)-1) == key && slices.ContainsFunc(m.block, func(line *directive) bool {
			return isAddress(line.arg(0))
		}) {
			t.sayMap(m, "addresses that nginx does not limit are limited like all others")
			return zone{d: z, by: byAddress}
		}
	}
	return zone{d: z}
}

// isAddress accepts the variables with the address of the client.
func isAddress(value string) bool { return value == "$binary_remote_addr" || value == "$remote_addr" }

// sayMap names a map, and the geo or map that it asks.
func (t *translator) sayMap(m *directive, text string) {
	t.say(m, text, "keep nginx in front where the exception matters")
	if t.doneAll(m); len(m.args) < 2 {
		return
	}
	for _, inner := range named(t.http, "map", "geo") {
		if !t.handled[inner] && inner.arg(len(inner.args)-1) == m.arg(0) {
			t.sayMap(inner, text)
		}
	}
}

// networkValue is the value of a variable for the clients of a network. That of the smallest
// network counts.
type networkValue struct {
	network netip.Prefix
	value   string
}

// Bounds of what is followed.
const (
	maxMaps     = 4    // one behind another
	maxNetworks = 128  // of a geo
	maxList     = 2000 // characters of a list
)

// unlimitedOf returns the networks for which a key is empty; for the others it is the address.
func (t *translator) unlimitedOf(key string) (networks string, from []*directive, ok bool) {
	values, from, ok := t.byNetwork(key, maxMaps)
	if !ok || len(values) > maxNetworks {
		return "", nil, false
	}
	var empty []netip.Prefix
	for _, v := range values {
		switch {
		case isAddress(v.value):
			continue
		case v.value != "":
			return "", nil, false
		}
		var inner []netip.Prefix // smaller networks with the limit
		for _, other := range values {
			if other.value != "" && other.network.Bits() > v.network.Bits() && other.network.Overlaps(v.network) {
				inner = append(inner, other.network)
			}
		}
		if empty = append(empty, subtract([]netip.Prefix{v.network}, inner)...); len(empty) > maxNetworks {
			return "", nil, false
		}
	}
	networks = list(empty)
	return networks, from, len(networks) <= maxList
}

// byNetwork returns the values of a variable by the network of the client, with the blocks that say
// so; false if it depends on something else.
func (t *translator) byNetwork(variable string, maps int) (values []networkValue, from []*directive, ok bool) {
	i := slices.IndexFunc(t.http, func(d *directive) bool {
		return (d.name == "map" || d.name == "geo") && variable != "" && d.arg(len(d.args)-1) == variable
	})
	if i < 0 || maps == 0 {
		return nil, nil, false
	}
	d := t.http[i]
	if d.name == "geo" && len(d.args) == 1 || d.arg(0) == "$remote_addr" {
		values, ok = networkValues(d)
		return values, []*directive{d}, ok
	}
	values, from, ok = t.byNetwork(d.arg(0), maps-1)
	if !ok || d.name == "geo" {
		return nil, nil, false
	}
	for i, v := range values {
		if values[i].value, ok = mapped(d, v.value); !ok {
			return nil, nil, false
		}
	}
	return values, append(from, d), true
}

// networkValues reads a geo, or a map of addresses; false if it has more than networks.
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

// mapped returns the value of a map; false if an expression or another file may decide.
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

// translateUnlimited writes the networks without limits. [access] has those of the limit of
// connections, if there is one: sections for all groups have other ones of requests.
func (t *translator) translateUnlimited(connections string, requests map[cell]string) {
	networks := map[cell]string{}
	for c, v := range requests {
		if v != "" {
			networks[c] = part(v, 2)
		}
	}
	choices := t.universe.spread(networks)
	if connections != "" {
		ofConnections := choice{value: part(connections, 1)}
		for i := range choices {
			if len(choices[i].selectors) == 0 && choices[i].value != ofConnections.value {
				for _, g := range t.universe.groups[:len(t.universe.groups)-1] {
					choices[i].selectors = append(choices[i].selectors, g+"/")
				}
			}
		}
		kept := []choice{ofConnections}
		for _, c := range choices {
			if len(c.selectors) > 0 && (c.value != ofConnections.value || slices.ContainsFunc(kept[1:], c.overlaps)) {
				kept = append(kept, c)
			}
		}
		choices = kept
	}
	from := map[string][]*directive{}
	for _, kind := range []string{"limit_req_zone", "limit_conn_zone"} {
		for _, z := range named(t.http, kind) {
			value, blocks, ok := t.unlimitedOf(zoneKey(z))
			if isAddress(zoneKey(z)) {
				value, blocks, ok = "", []*directive{z}, true
			}
			if ok && t.handled[z] && from[value] == nil {
				from[value] = blocks
			}
		}
	}
	t.writeChoices("access", choices, from, []keyOf{{"unlimited", func(v string) string { return v }}})
}
