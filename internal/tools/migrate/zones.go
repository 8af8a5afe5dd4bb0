package migrate

import (
	"cmp"
	"slices"
	"strings"
)

// zone is a zone of limit_req or limit_conn by the address of the client.
type zone struct {
	d         *directive
	unlimited string       // the networks for which its key is empty
	from      []*directive // the directives that define the networks
}

// zone returns a zone by its name. ok is false if it does not count by the address.
func (t *translator) zone(kind, name string) (z zone, ok bool) {
	for _, d := range named(t.http, kind) {
		if zoneName, _, _ := strings.Cut(d.option("zone"), ":"); zoneName != name {
			continue
		}
		key := strings.NewReplacer("{", "", "}", "").Replace(d.arg(0))
		if isAddress(key) {
			return zone{d: d}, true
		}
		networks, from, ok := t.unlimitedOf(key)
		return zone{d, networks, from}, ok
	}
	return z, false
}

// isAddress reports whether a value is a variable with the address of the client.
func isAddress(value string) bool { return value == "$binary_remote_addr" || value == "$remote_addr" }

// maxNetworks bounds the networks without limits.
const maxNetworks = 64

// unlimitedOf returns the networks for which a key is empty: those of a geo whose value a map turns
// into an empty text. ok is false for any other key.
func (t *translator) unlimitedOf(key string) (networks string, from []*directive, ok bool) {
	keys := t.mapOf(key)
	if keys == nil || len(keys.args) != 2 {
		return "", nil, false
	}
	geo, values := t.mapOf(keys.arg(0)), map[string]string{}
	for _, line := range keys.block {
		if values[line.name] = line.arg(0); len(line.args) != 1 || line.arg(0) != "" && !isAddress(line.arg(0)) {
			return "", nil, false
		}
	}
	if geo == nil || geo.name != "geo" || len(geo.args) != 1 || len(geo.block) > maxNetworks {
		return "", nil, false
	}
	for _, line := range geo.block {
		value, known := values[line.arg(0)]
		if !known {
			value = values["default"]
		}
		switch isDefault := line.name == "default"; {
		case isDefault != (value != "") || !isDefault && !isNetwork(line.name):
			return "", nil, false
		case !isDefault:
			networks = strings.TrimPrefix(networks+", "+line.name, ", ")
		}
	}
	return networks, []*directive{geo, keys}, true
}

// mapOf returns the map or geo block of a variable, or nil.
func (t *translator) mapOf(variable string) *directive {
	for _, d := range named(t.http, "map", "geo") {
		if variable != "" && d.arg(len(d.args)-1) == variable {
			return d
		}
	}
	return nil
}

// translateConnections writes the limits of connections from one address and in all.
func translateConnections(t *translator) {
	for _, l := range append([]*location{t.main.self}, t.main.order()...) {
		for _, d := range inForce(l.chain(), "limit_conn") {
			key := "max_connections_per_ip"
			z, ok := t.zone("limit_conn_zone", d.arg(0))
			if z.d != nil && slices.Contains([]string{"$server_name", "$host", "$http_host"}, z.d.arg(0)) {
				key, ok = "max_connections", true
			}
			if !ok || !l.isOpen() && l != t.main.self || cmp.Or(t.out.get("gateway", key), d.arg(1)) != d.arg(1) {
				continue // said
			}
			t.out.set("gateway", key, d.arg(1), z.d, d)
			t.unlimited = cmp.Or(t.unlimited, z.unlimited)
			t.done(append(z.from, z.d, d)...)
		}
	}
}
