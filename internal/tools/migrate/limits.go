package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// limitKey is the key by which a zone counts.
type limitKey int

const (
	byOther limitKey = iota
	byAddress
	byServer
)

// zone is a zone of limit_req or limit_conn.
type zone struct {
	d         *directive // nil = there is none
	by        limitKey
	unlimited string       // the networks for which its key is empty
	from      []*directive // the directives that define the networks
}

// zone returns a zone by its name, with its key.
func (t *translator) zone(kind, name string) zone {
	for _, z := range named(t.http, kind) {
		if z.option("zone") != name && !strings.HasPrefix(z.option("zone"), name+":") {
			continue
		}
		switch key := zoneKey(z); key {
		case "$binary_remote_addr", "$remote_addr":
			return zone{d: z, by: byAddress, from: []*directive{z}}
		case "$server_name", "$host", "$http_host":
			return zone{d: z, by: byServer}
		case "$http_x_forwarded_for", "$http_x_real_ip":
			t.note(z, "the address of the client is the key", "set trusted_proxies and client_address")
			return zone{d: z, by: byAddress}
		default:
			return t.mappedZone(z, key)
		}
	}
	return zone{}
}

// zoneKey returns the variable by which a zone counts.
func zoneKey(z *directive) string { return strings.NewReplacer("{", "", "}", "").Replace(z.arg(0)) }

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
	t.statuses()
	connections := t.limit("limit_conn", t.connectionLimit(byAddress), "max_connections_per_ip")
	t.limit("limit_conn", t.connectionLimit(byServer), "max_connections")
	t.limit("max_ranges", t.rangeLimit, "max_ranges")
	requests := t.limitFiles(t.requestLimit, "requests_per_second", "requests_burst")
	t.limitFiles(t.rateLimit, "send_rate", "send_rate_after")
	t.translateUnlimited(connections, requests)
}

// limitFiles writes keys of [access] by groups, store paths and extensions, and returns the values
// of each kind of files.
func (t *translator) limitFiles(get func(chain [][]*directive) attribute, keys ...string) map[cell]string {
	values, from := t.perCell(func(s *server, l *location) attribute { return get(s.chain(l)) })
	t.writeChoices("access", t.universe.spread(values), from, keys...)
	return values
}

// limit writes a key of [gateway] with the value that most files have, which it returns.
func (t *translator) limit(name string, get func(chain [][]*directive) attribute, key string) (value string) {
	values, from := t.perCell(func(s *server, l *location) attribute { return get(s.chain(l)) })
	value = t.universe.commonest(values)
	number, now := part(value, 0), "there is none"
	if number != "" && number != "0" {
		t.out.set("gateway", key, number, from[value]...)
		now = key + " = " + number
	}
	for _, d := range others(from, value) {
		if !strings.HasSuffix(d.name, "_zone") {
			t.say(d, fmt.Sprintf("%s is the same for all files: %s", name, now),
				"run a second gateway on another address for files with a limit of their own")
		}
	}
	bare := slices.ContainsFunc(t.universe.all, func(c cell) bool { v, ok := values[c]; return ok && v == "" })
	if n := len(from[value]); bare && n > 0 && value != "" {
		t.note(from[value][n-1], "the limit holds for all files, also for those of other locations", "")
	}
	return value
}

// rangeLimit returns the limit of ranges in one response.
func (t *translator) rangeLimit(chain [][]*directive) (a attribute) {
	d := last(chain, "max_ranges")
	if d == nil {
		return a
	}
	t.done(d)
	if n, _ := strconv.Atoi(d.arg(0)); n >= 1 && n <= 1000 {
		return attribute{d.arg(0), []*directive{d}}
	}
	t.say(d, "one response has 1 to 1000 ranges", "set max_ranges")
	return a
}

// statuses adds notes about limits with a status other than 429.
func (t *translator) statuses() {
	chain := t.kept[0].chain(nil)
	for _, name := range []string{"limit_req", "limit_conn"} {
		d := last(chain, name+"_status")
		if d != nil && d.arg(0) != "429" {
			t.note(d, "a request over a limit is 429 with Retry-After", "")
		}
		t.done(withoutNil(d)...)
	}
}

var zoneRate = regexp.MustCompile(`^(\d+)r/([sm])$`)

// requestLimit returns requests per second, the burst, and the networks without the limit.
func (t *translator) requestLimit(chain [][]*directive) (a attribute) {
	for _, d := range inForce(chain, "limit_req") {
		z := t.zone("limit_req_zone", d.option("zone"))
		if z.d == nil || z.by != byAddress {
			continue
		}
		m := zoneRate.FindStringSubmatch(z.d.option("rate"))
		if m == nil || a.value != "" {
			t.say(d, "one limit of requests holds, the first one", "")
			continue
		}
		rate, _ := strconv.ParseFloat(m[1], 64)
		if m[2] == "m" {
			rate /= 60
		}
		burst, _ := strconv.Atoi(d.option("burst")) // nginx adds it to the first request
		a.value = parts(trimFloat(min(rate, maxRequests)), strconv.Itoa(min(max(burst, 1), maxRequests)), z.unlimited)
		a.from = append(a.from, z.d, d)
		t.done(z.d)
		if t.done(d); d.option("burst") != "" && !d.has("nodelay") {
			t.note(d, "requests within the burst are served at once, not delayed", "")
		}
	}
	return a
}

// maxRequests bounds requests_per_second and requests_burst.
const maxRequests = 1_000_000

// trimFloat returns a number with at most four digits behind the point.
func trimFloat(v float64) string {
	text := strconv.FormatFloat(v, 'f', 4, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// connectionLimit returns the number of connections from one address, or of the server, and the
// networks without the limit.
func (t *translator) connectionLimit(of limitKey) func(chain [][]*directive) attribute {
	return func(chain [][]*directive) (a attribute) {
		for _, d := range inForce(chain, "limit_conn") {
			z := t.zone("limit_conn_zone", d.arg(0))
			if z.d == nil || z.by != of || a.value != "" {
				continue
			}
			a.value, a.from = parts(d.arg(1), z.unlimited), append(a.from, z.d, d)
			t.done(z.d, d)
		}
		return a
	}
}

// rateLimit returns the rate of one response and the bytes before it.
func (t *translator) rateLimit(chain [][]*directive) (a attribute) {
	d, after := last(chain, "limit_rate"), last(chain, "limit_rate_after")
	for _, set := range inForce(chain, "set") {
		if set.arg(0) == "$limit_rate" {
			d = set // $limit_rate wins over limit_rate
		}
	}
	t.done(withoutNil(after)...)
	if d == nil {
		return a
	}
	rate, ok := nginxSize(d.arg(len(d.args) - 1))
	if !ok {
		t.say(d, "a rate by a variable is not translated", "set send_rate to a number of bytes")
		return a
	}
	t.done(d)
	a.from = append(a.from, d)
	if rate == "0" {
		return a
	}
	a.value = rate
	if after != nil {
		if size, ok := nginxSize(after.arg(0)); ok {
			a.value = parts(rate, size)
			a.from = append(a.from, after)
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
