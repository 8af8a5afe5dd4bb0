package migrate

import (
	"cmp"
	"fmt"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// setting is a key of [headers] or [access] for the files of a location.
type setting struct {
	section, key, value string
	from                []*directive
}

// corsKeys are the keys for the fields of CORS, which are the same for all files.
var corsKeys = map[string]string{"Access-Control-Allow-Origin": "cors_origin", "Access-Control-Max-Age": "cors_max_age",
	"Access-Control-Expose-Headers": "cors_expose", "Access-Control-Allow-Headers": "cors_headers"}

// writeFiles writes the keys that differ between files: for all files those of the server, or of
// its only location with files, then those of each location with a plain pattern, in nginx's order.
func (t *translator) writeFiles() {
	general := *t.base()
	general.area = everything
	list := append([]*location{&general}, t.main.openLocations()...)
	values, ids := make([]map[string]setting, len(list)), []string(nil)
	for i, l := range list {
		values[i] = map[string]setting{}
		for _, s := range t.settingsOf(l) {
			id := s.section + " " + s.key
			values[i][id], ids = s, union(ids, id)
		}
	}
	for i, l := range list {
		lost := false
		for _, id := range ids {
			section, key, _ := strings.Cut(id, " ")
			v := values[i][id]
			switch t.done(v.from...); {
			case corsKeys[key] != "":
				t.writeCORS(l, key, v)
			case l.area.plain:
				t.out.put(section, l.area.files, key, v.value, v.from...)
			default:
				lost = lost || v.value != values[0][id].value
			}
		}
		if lost {
			t.sayRow(l.d, "location:pattern")
		}
	}
	for _, s := range t.kept[1:] {
		if t.filesText(s) != t.filesText(t.main) {
			t.sayRow(cmp.Or(first(s.d.block, "server_name"), s.d), "server:headers")
		}
	}
}

// filesText returns the keys that differ between the files of a server, as a text to compare.
func (t *translator) filesText(s *server) (text string) {
	for _, l := range s.openLocations() {
		for _, v := range t.settingsOf(l) {
			text += fmt.Sprintln(l.area.files, v.key, v.value)
			t.done(v.from...)
		}
	}
	return text
}

// base returns the block whose keys are those of all files: the server, or its only location with
// files.
func (t *translator) base() *location {
	if list := t.main.openLocations(); len(list) == 1 && !t.main.self.serves {
		return list[0]
	}
	return t.main.self
}

// settingsOf returns the keys for the files of a location.
func (t *translator) settingsOf(l *location) (all []setting) {
	for _, settings := range perFile {
		all = append(all, settings(t, l)...)
	}
	return all
}

// writeCORS writes a key of CORS, and removes the field from files that do not have it.
func (t *translator) writeCORS(l *location, name string, v setting) {
	now := t.out.get("gateway", corsKeys[name])
	switch {
	case v.value != "" && (now == "" || now == v.value):
		t.out.set("gateway", corsKeys[name], v.value, v.from...)
	case v.value != "":
		t.sayRow(v.from[0], "add_header:cors")
	case name == "Access-Control-Allow-Origin" && l.area.plain && !l.area.files.all():
		s := t.out.section("headers", l.area.files)
		s.entries = append(s.entries, entry{key: name}, entry{key: "Access-Control-Expose-Headers"})
	}
}

// computed are the fields that the gateway computes.
var computed = []string{"Content-Length", "Content-Type", "Content-Range", "Content-Encoding", "Etag", "Last-Modified",
	"Accept-Ranges", "Date", "Server", "Connection", "Keep-Alive", "Transfer-Encoding", "Location", "Allow", "X-Cache",
	"Age", "Retry-After", "Trailer", "Upgrade", "Alt-Svc"}

// fields returns the fields of the files of a location, by add_header and expires. The fields of
// CORS in an if on the method count for all methods, since sites set them for one method only.
func (t *translator) fields(l *location) (all []setting) {
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
		i := slices.IndexFunc(all, func(s setting) bool { return s.key == name })
		switch t.done(d); {
		case value == "":
		case i < 0:
			all = append(all, setting{"headers", name, value, []*directive{d}})
		case all[i].value != value:
			all[i].value += ", " + value
			all[i].from = append(all[i].from, d)
		}
	}
	return all
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
		t.out.set("gateway", "x_cache", "true", d)
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
					t.out.set("gateway", "filename_parameters", "filename")
				}
				t.out.addValue("gateway", "filename_parameters", m[1], d)
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
func (t *translator) rateLimit(l *location) (all []setting) {
	for _, name := range []string{"limit_rate", "limit_rate_after"} {
		if d := last(l.chain(), name); d != nil {
			if size, ok := nginxSize(d.arg(0)); ok {
				key := strings.Replace(name, "limit", "send", 1)
				all = append(all, setting{"access", key, strings.TrimPrefix(size, "0"), []*directive{d}})
			}
		}
	}
	return all
}

var zoneRate = lazy(`^(\d{1,6})r/([sm])$`)

// requestLimit returns requests per second, the burst, and the networks without the limit.
func (t *translator) requestLimit(l *location) []setting {
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
		return []setting{{"access", "requests_per_second", text, from},
			{"access", "requests_burst", strconv.Itoa(min(max(burst, 1), 1_000_000)), from},
			{"access", "unlimited", z.unlimited, z.from}}
	}
	return []setting{{"access", "unlimited", t.unlimited, nil}}
}
