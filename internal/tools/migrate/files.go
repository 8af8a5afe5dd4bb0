package migrate

import (
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// corsKeys are the keys for the fields of CORS, which are the same for all files.
var corsKeys = map[string]string{"Access-Control-Allow-Origin": "cors_origin", "Access-Control-Max-Age": "cors_max_age",
	"Access-Control-Expose-Headers": "cors_expose", "Access-Control-Allow-Headers": "cors_headers"}

// base returns the block whose keys are those of all files: the server, or its only location with
// files.
func (t *translator) base() *location {
	list := without(blocksOf(t.main), func(l *location) bool { return !l.open() })
	if len(list) == 1 {
		return list[0]
	}
	return t.main.self
}

// settingsOf returns the settings of the files of a location with a rule.
func (t *translator) settingsOf(l *location, r rule) settings {
	if l.values == nil {
		l.values = settings{}
		for _, add := range perFile {
			add(t, l, l.values)
		}
	}
	if !r.restricts() {
		t.done(r.from...) // allow all
	}
	all := maps.Clone(l.values)
	maps.Copy(all, r.settings())
	return all
}

// writeCORS writes the keys of CORS, which are the same for all files, and removes the fields from
// files that do not have them.
func (t *translator) writeCORS(wanted []settings) {
	const origin = "headers Access-Control-Allow-Origin"
	var lacks []settings
	for _, w := range wanted {
		if w[origin].value == "" && !w.closed() {
			lacks = append(lacks, w)
		}
		for _, name := range slices.Sorted(maps.Keys(corsKeys)) {
			key, v := corsKeys[name], w["headers "+name]
			delete(w, "headers "+name)
			switch now := t.out.get("gateway", key); {
			case v.value != "" && (now == "" || now == v.value):
				t.set("gateway", key, v.value, v.from...)
			case v.value != "":
				t.sayRow(v.from[0], "add_header:cors")
			}
		}
	}
	for _, w := range lacks {
		if t.out.get("gateway", "cors_origin") != "" {
			w[origin], w["headers Access-Control-Expose-Headers"] = setting{value: removed}, setting{value: removed}
		}
	}
}

// computed are the fields that the gateway computes.
var computed = []string{"Content-Length", "Content-Type", "Content-Range", "Content-Encoding", "Etag", "Last-Modified",
	"Accept-Ranges", "Date", "Server", "Connection", "Keep-Alive", "Transfer-Encoding", "Location", "Allow", "X-Cache",
	"Age", "Retry-After", "Trailer", "Upgrade", "Alt-Svc"}

// fields returns the fields of the files of a location, by add_header and expires. The fields of
// CORS in an if on the method count for all methods, since sites set them for one method only.
func (t *translator) fields(l *location, all settings) {
	list := inForce(l.chain(), "add_header")
	for _, d := range named(l.d.block, "if") {
		if d.arg(0) == "$request_method" {
			t.done(d)
			list = append(slices.Clone(list), without(named(d.block, "add_header"), func(d *directive) bool {
				return !strings.HasPrefix(strings.ToLower(d.arg(0)), "access-control-")
			})...)
		}
	}
	if d := last(l.chain(), "expires"); d != nil {
		list = slices.Insert(slices.Clone(list), 0, d)
	}
	for _, d := range list {
		name, value := t.fieldOf(d)
		switch s := all["headers "+name]; {
		case value == "":
			t.done(d)
		case s.value != "" && s.value != value:
			all["headers "+name] = setting{s.value + ", " + value, append(s.from, d)}
		default:
			all["headers "+name] = setting{value, append(s.from, d)}
		}
	}
}

// origins matches the values of cors_origin.
var origins = lazy(`^(\*|https?://[A-Za-z0-9.:\[\]_-]+)$`)

// fieldOf returns the field of add_header or expires. The value is empty if the gateway sends the
// field by itself, or cannot send it.
func (t *translator) fieldOf(d *directive) (name, value string) {
	if d.name == "expires" {
		return "Cache-Control", t.maxAge(d)
	}
	name, value = textproto.CanonicalMIMEHeaderKey(strings.TrimSuffix(d.arg(0), ":")), d.arg(1)
	lower := strings.ToLower(value)
	switch {
	case name == "X-Content-Type-Options" && lower == "nosniff": // always sent
	case name == "Content-Disposition" && strings.Contains(value, "$arg_"): // see writeNames
	case name == "Access-Control-Allow-Methods":
		t.sayRow(d, "add_header:preflight")
	case name == "Access-Control-Allow-Origin" && !origins().MatchString(value),
		name == "Access-Control-Allow-Credentials":
		t.sayRow(d, "add_header:credentials")
	case value == "$upstream_cache_status":
		t.set("gateway", "x_cache", "true", d)
	case slices.Contains(computed, name):
		t.sayRow(d, "add_header:computed")
	case strings.Contains(value, "$"):
		t.sayRow(d, "add_header:variable")
	case name == "Content-Disposition" && strings.HasPrefix(lower, "attachment"):
		return name, "attachment"
	default:
		return name, value
	}
	return name, ""
}

// maxAge translates expires to a value of Cache-Control.
func (t *translator) maxAge(d *directive) string {
	v := d.arg(0)
	seconds, ok := nginxSeconds(strings.TrimPrefix(v, "-"))
	switch {
	case v == "off":
		return ""
	case v == "max":
		return "max-age=315360000"
	case v == "epoch", ok && v[0] == '-':
		return "no-cache"
	case !ok:
		t.sayRow(d, "expires:time")
		return ""
	}
	return fmt.Sprintf("max-age=%d", seconds)
}

var (
	argument = lazy(`\$\{?arg_([A-Za-z0-9_]+)\}?`)
	anyName  = lazy(`^\^?\(?(\.|\[\^ \])[+*]?\)?\$?$`) // an expression for any name
)

// writeNames writes the query parameters with the file name of a download, often attname.
func (t *translator) writeNames() {
	for _, l := range blocksOf(t.kept...) {
		for _, block := range append(named(l.d.block, "if"), l.d) {
			found := false
			for _, d := range named(block.block, "add_header") {
				m := argument().FindStringSubmatch(d.arg(1))
				if m == nil || !strings.EqualFold(d.arg(0), "Content-Disposition") {
					continue
				}
				if found = true; t.out.get("gateway", "filename_parameters") == "" {
					t.set("gateway", "filename_parameters", "filename")
				}
				t.addTo("gateway", "filename_parameters", m[1], d)
				if t.done(d); block == l.d {
					t.sayRow(d, "add_header:always")
				}
			}
			if !found || block == l.d {
				continue
			}
			for _, d := range named(block.block, "add_header") {
				if !t.handled[d] {
					t.sayRow(d, "add_header:parameter")
				}
			}
			if t.handled[block] = true; len(block.args) > 2 && !anyName().MatchString(block.arg(2)) {
				t.sayRow(block, "if:name")
			}
		}
	}
}

// rateLimit returns the rate of one response and the bytes before it.
func (t *translator) rateLimit(l *location, all settings) {
	for _, name := range []string{"limit_rate", "limit_rate_after"} {
		if d := last(l.chain(), name); d != nil {
			if size, ok := nginxSize(d.arg(0)); ok {
				key := "access " + strings.Replace(name, "limit", "send", 1)
				all[key] = setting{strings.TrimPrefix(size, "0"), []*directive{d}}
			}
		}
	}
}

var zoneRate = lazy(`^(\d{1,6})r/([sm])$`)

// requestLimit returns requests per second, the burst, and the networks without the limit.
func (t *translator) requestLimit(l *location, all settings) {
	all["access unlimited"] = setting{value: t.unlimited}
	for _, d := range inForce(l.chain(), "limit_req") {
		z, ok := t.zone("limit_req_zone", d.option("zone"))
		if !ok {
			continue // said
		}
		m := zoneRate().FindStringSubmatch(z.d.option("rate"))
		if m == nil {
			continue
		}
		rate, _ := strconv.ParseFloat(m[1], 64)
		if m[2] == "m" {
			rate /= 60
		}
		burst, _ := strconv.Atoi(d.option("burst")) // nginx adds it to the first request
		from := []*directive{z.d, d}
		if d.option("burst") != "" && !d.has("nodelay") {
			t.sayRow(d, "limit_req:burst")
		}
		text := strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(rate, 'f', 4, 64), "0"), ".")
		all["access requests_per_second"] = setting{text, from}
		all["access requests_burst"] = setting{strconv.Itoa(min(max(burst, 1), 1_000_000)), from}
		all["access unlimited"] = setting{z.unlimited, z.from}
		return
	}
}
