package migrate

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
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

// unlimitedOf returns the networks for which a key is empty: a map of the values of a geo, to the
// address and an empty text. ok is false for any other key.
func (t *translator) unlimitedOf(key string) (networks string, from []*directive, ok bool) {
	keys := t.mapOf(key)
	if keys == nil || len(keys.args) != 2 {
		return "", nil, false
	}
	geo := t.mapOf(keys.arg(0))
	if geo == nil || geo.name != "geo" || len(geo.args) != 1 {
		return "", nil, false
	}
	values := map[string]string{}
	for _, line := range keys.block {
		if len(line.args) != 1 || line.arg(0) != "" && !isAddress(line.arg(0)) {
			return "", nil, false
		}
		values[line.name] = line.arg(0)
	}
	var empty, counted []netip.Prefix
	for _, line := range geo.block {
		value, known := values[line.arg(0)]
		if !known {
			value = values["default"]
		}
		network, ok := networksOf(line.name)
		switch {
		case line.name == "default" && value != "":
			continue
		case !ok || line.name == "all":
			return "", nil, false
		case value == "":
			empty = append(empty, network...)
		default:
			counted = append(counted, network...)
		}
	}
	for _, a := range empty {
		if slices.ContainsFunc(counted, a.Overlaps) {
			return "", nil, false
		}
	}
	return list(empty), []*directive{geo, keys}, len(empty) <= maxNetworks
}

// maxNetworks bounds the networks without limits.
const maxNetworks = 64

// mapOf returns the map or geo block of a variable, or nil.
func (t *translator) mapOf(variable string) *directive {
	for _, d := range named(t.http, "map", "geo") {
		if variable != "" && d.arg(len(d.args)-1) == variable {
			return d
		}
	}
	return nil
}

// option returns the value of a parameter name=value.
func (d *directive) option(name string) string {
	for _, a := range d.args {
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			return v
		}
	}
	return ""
}

// translateLimits writes the limits of requests, connections and rates. The limits of connections
// are the same for all files: the values that most files have win.
func (t *translator) translateLimits() {
	requests, from := t.perCell(func(s *server, l *location) attribute { return t.requestLimit(s.chain(l)) })
	t.writeChoices("access", t.universe.spread(requests), from, "requests_per_second", "requests_burst")
	t.writeFiles("access", func(s *server, l *location) attribute { return t.rateLimit(s.chain(l)) },
		"send_rate", "send_rate_after")
	for _, all := range []bool{false, true} {
		key := map[bool]string{false: "max_connections_per_ip", true: "max_connections"}[all]
		values, from := t.perCell(func(s *server, l *location) attribute {
			return t.connectionLimit(s.chain(l), all)
		})
		if !all {
			t.writeUnlimited(requests, values)
		}
		value := t.universe.commonest(values)
		for _, d := range others(from, value) {
			if d.name == "limit_conn" {
				t.say(d, "limit_conn is the same for all files: "+key+" = "+part(value, 0),
					"run a second gateway on another address for files with a limit of their own")
			}
		}
		if value != "" {
			t.out.set("gateway", key, part(value, 0), from[value]...)
		}
	}
}

// writeUnlimited writes the networks without limits. [access] has those of the limit of
// connections, which is the same for all files.
func (t *translator) writeUnlimited(requests, connections map[cell]string) {
	general := part(t.universe.commonest(connections), 1)
	values := map[cell]string{{otherGroup, otherPath, ""}: general}
	for _, c := range t.universe.all {
		if requests[c] != "" && (c != cell{otherGroup, otherPath, ""} || general == "") {
			values[c] = part(requests[c], 2)
		}
	}
	t.writeChoices("access", t.universe.spread(values), nil, "unlimited")
}

// writeFiles writes keys by groups, store paths and extensions.
func (t *translator) writeFiles(section string, get func(s *server, l *location) attribute, keys ...string) {
	values, from := t.perCell(get)
	t.writeChoices(section, t.universe.spread(values), from, keys...)
}

var zoneRate = regexp.MustCompile(`^(\d+)r/([sm])$`)

// requestLimit returns requests per second, the burst, and the networks without the limit.
func (t *translator) requestLimit(chain [][]*directive) (a attribute) {
	for _, d := range inForce(chain, "limit_req") {
		z, ok := t.zone("limit_req_zone", d.option("zone"))
		if !ok || a.value != "" {
			continue // said
		}
		m := zoneRate.FindStringSubmatch(z.d.option("rate"))
		if m == nil {
			continue
		}
		rate, _ := strconv.ParseFloat(m[1], 64)
		if m[2] == "m" {
			rate /= 60
		}
		burst, _ := strconv.Atoi(d.option("burst")) // nginx adds it to the first request
		text := strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(min(rate, maxRequests), 'f', 4, 64), "0"), ".")
		a.value = parts(text, strconv.Itoa(min(max(burst, 1), maxRequests)), z.unlimited)
		a.from = append(append(a.from, z.from...), z.d, d)
		t.doneAll(a.from...)
		if d.option("burst") != "" && !d.has("nodelay") {
			t.note(d, "requests within the burst are served at once, not delayed", "")
		}
	}
	return a
}

// maxRequests bounds requests_per_second and requests_burst.
const maxRequests = 1_000_000

// connectionLimit returns the number of connections from one address, or of the server.
func (t *translator) connectionLimit(chain [][]*directive, all bool) (a attribute) {
	for _, d := range inForce(chain, "limit_conn") {
		z, ok := t.zone("limit_conn_zone", d.arg(0))
		if all {
			ofServer := []string{"$server_name", "$host", "$http_host"}
			z, ok = zone{d: z.d}, z.d != nil && slices.Contains(ofServer, z.d.arg(0))
		}
		if !ok || a.value != "" {
			continue // said
		}
		a = attribute{parts(d.arg(1), z.unlimited), []*directive{z.d, d}}
		t.done(a.from...)
		t.doneAll(z.from...)
	}
	return a
}

// rateLimit returns the rate of one response and the bytes before it.
func (t *translator) rateLimit(chain [][]*directive) (a attribute) {
	d, after := last(chain, "limit_rate"), last(chain, "limit_rate_after")
	if d == nil {
		return a
	}
	rate, ok := nginxSize(d.arg(0))
	if !ok {
		return a // said
	}
	if t.done(withoutNil(d, after)...); rate == "0" {
		return attribute{"", []*directive{d}}
	}
	a = attribute{rate, []*directive{d}}
	if after != nil {
		if size, ok := nginxSize(after.arg(0)); ok {
			a = attribute{parts(rate, size), []*directive{d, after}}
		}
	}
	return a
}

var sizePattern = regexp.MustCompile(`^(\d+)([kKmMgG]?)$`)

// nginxSize returns a size of nginx in the form of the gateway: 500k is 500KB, both by 1024.
func nginxSize(v string) (string, bool) {
	m := sizePattern.FindStringSubmatch(v)
	if m == nil {
		return "", false
	}
	if m[2] != "" {
		return m[1] + strings.ToUpper(m[2]) + "B", true
	}
	return m[1], true
}
