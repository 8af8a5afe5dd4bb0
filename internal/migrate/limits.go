package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// limitKey is what a zone counts by.
type limitKey int

const (
	byOther limitKey = iota
	byAddress
	byServer
)

// zone returns the directive of a zone, and what it counts by.
func (t *translator) zone(kind, name string) (d *directive, by limitKey) {
	for _, z := range named(t.http, kind) {
		if !slices.ContainsFunc(z.args, func(a string) bool {
			return strings.HasPrefix(a, "zone="+name+":") ||
				a == "zone="+name
		}) {
			continue
		}
		switch key := strings.NewReplacer("{", "", "}", "").Replace(z.arg(0)); key {
		case "$binary_remote_addr", "$remote_addr":
			return z, byAddress
		case "$server_name", "$host", "$http_host":
			return z, byServer
		default:
			return z, t.mappedKey(z, key)
		}
	}
	return nil, byOther
}

// mappedKey follows a key through map blocks: addresses without a limit are a finding.
func (t *translator) mappedKey(z *directive, key string) limitKey {
	for _, m := range named(t.http, "map", "geo") {
		if m.arg(len(m.args)-1) != key {
			continue
		}
		for _, line := range m.block {
			if v := line.arg(0); v == "$binary_remote_addr" || v == "$remote_addr" {
				t.sayMap(m, "addresses that nginx does not limit are limited like all others")
				return byAddress
			}
		}
	}
	if key == "$http_x_forwarded_for" || key == "$http_x_real_ip" {
		t.note(z, "the address of the client is the key", "set trusted_proxies and client_address")
		return byAddress
	}
	return byOther
}

// sayMap names a map, and the geo or map that it asks.
func (t *translator) sayMap(m *directive, text string) {
	t.say(m, text, "keep nginx in front where the exception matters")
	t.doneAll(m)
	if len(m.args) < 2 {
		return
	}
	for _, inner := range named(t.http, "map", "geo") {
		if inner != m && inner.arg(len(inner.args)-1) == m.arg(0) {
			t.sayMap(inner, text)
		}
	}
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

// translateLimits writes the limits of requests, connections and rates. The gateway has one of each
// for all files: that of most files counts.
func (t *translator) translateLimits() {
	t.statuses()
	t.limit("limit_req", t.requestLimit, "requests_per_second", "requests_burst")
	t.limit("limit_conn", t.connectionLimit(byAddress), "max_connections_per_ip")
	t.limit("limit_conn", t.connectionLimit(byServer), "max_connections")
	t.limit("limit_rate", t.rateLimit, "send_rate", "send_rate_after")
	t.eachBlock(func(block []*directive) {
		for _, d := range named(block, "limit_req", "limit_conn") {
			if !t.handled[d] {
				t.say(d, "the zone counts by something that the gateway does not count by, or is not there",
					"use requests_per_second, max_connections_per_ip or max_connections")
			}
		}
	})
}

// limit writes keys with the values that most files have; values are separated by a slash.
func (t *translator) limit(name string, get func(chain [][]*directive) attribute, keys ...string) {
	values, from := t.perCell(func(s *server, o outcome) attribute { return get(s.chain(o.loc)) })
	value, _ := t.universe.commonest(values, func(cell) bool { return true })
	section := "access"
	if strings.HasPrefix(keys[0], "max_") {
		section = "gateway"
	}
	for i, v := range strings.Split(value, "/") {
		if i < len(keys) && v != "" && v != "0" {
			t.out.set(section, keys[i], v, from[value]...)
		}
	}
	for other, list := range from {
		if other == value {
			continue
		}
		for _, d := range slices.DeleteFunc(list, func(d *directive) bool {
			return strings.HasSuffix(d.name,
				"_zone")
		}) {
			now := "there is none"
			if value != "" {
				now = keys[0] + " = " + strings.Split(value, "/")[0]
			}
			t.say(d, fmt.Sprintf("%s is the same for all files: %s", name, now),
				"run a second gateway on another address for files with a limit of their own")
		}
	}
	bare := slices.ContainsFunc(t.universe.all, func(c cell) bool { v, ok := values[c]; return ok && v == "" })
	if n := len(from[value]); bare && n > 0 && value != "" {
		t.note(from[value][n-1], "the limit holds for all files, also for those of other locations", "")
	}
}

// statuses names statuses of limits other than 429.
func (t *translator) statuses() {
	chain := [][]*directive{t.servers[0].d.block, t.servers[0].http}
	for _, name := range []string{"limit_req", "limit_conn"} {
		d := last(chain, name+"_status")
		if d != nil && d.arg(0) != "429" {
			t.note(d, "a request over a limit is 429 with Retry-After", "")
		}
		t.done(withoutNil(d)...)
	}
}

var zoneRate = regexp.MustCompile(`^(\d+)r/([sm])$`)

// requestLimit returns requests per second and the burst.
func (t *translator) requestLimit(chain [][]*directive) (a attribute) {
	for _, d := range inForce(chain, "limit_req") {
		z, by := t.zone("limit_req_zone", d.option("zone"))
		if z == nil || by != byAddress {
			continue
		}
		m := zoneRate.FindStringSubmatch(z.option("rate"))
		if m == nil || a.value != "" {
			t.say(d, "one limit of requests holds, the first one", "")
			continue
		}
		rate, _ := strconv.ParseFloat(m[1], 64)
		if m[2] == "m" {
			rate /= 60
		}
		burst := d.option("burst")
		if burst == "" {
			burst = "1"
		}
		a.value = trimFloat(rate) + "/" + burst
		a.from = append(a.from, z, d)
		t.done(z)
		if t.done(d); d.option("burst") != "" && !d.has("nodelay") && d.option("delay") == "" {
			t.note(d, "requests within the burst are served at once, not delayed", "")
		}
	}
	return a
}

// trimFloat writes a number with at most three digits behind the point.
func trimFloat(v float64) string {
	text := strconv.FormatFloat(v, 'f', 3, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// connectionLimit returns the number of connections from one address, or of the server.
func (t *translator) connectionLimit(of limitKey) func(chain [][]*directive) attribute {
	return func(chain [][]*directive) (a attribute) {
		for _, d := range inForce(chain, "limit_conn") {
			z, by := t.zone("limit_conn_zone", d.arg(0))
			if z == nil || by != of || a.value != "" {
				continue
			}
			a.value, a.from = d.arg(1), append(a.from, z, d)
			t.done(z, d)
		}
		return a
	}
}

// rateLimit returns the rate of one response and the bytes before it.
func (t *translator) rateLimit(chain [][]*directive) (a attribute) {
	d, after := last(chain, "limit_rate"), last(chain, "limit_rate_after")
	if d == nil {
		t.done(withoutNil(after)...)
		return a
	}
	rate, ok := nginxSize(d.arg(0))
	if !ok {
		t.say(d, "a rate by a variable is not translated", "set send_rate to a number of bytes")
		return a
	}
	t.done(d)
	if rate == "0" {
		return a
	}
	a.value, a.from = rate, append(a.from, d)
	if after != nil {
		t.done(after)
		if size, ok := nginxSize(after.arg(0)); ok {
			a.value += "/" + size
			a.from = append(a.from, after)
		}
	}
	return a
}

var sizePattern = regexp.MustCompile(`^(\d+)([kKmMgG]?)$`)

// nginxSize writes a size of nginx as the gateway does: 500k is 500KB, both by 1024.
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
