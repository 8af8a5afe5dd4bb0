package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/i18n"
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
	base, list := t.base(), t.main.open()
	values, ids := map[*location]map[string]setting{}, []string{}
	general := &location{area: everything}
	for _, l := range append([]*location{base}, list...) {
		values[l] = map[string]setting{}
		for _, s := range t.settingsOf(l) {
			id := s.section + " " + s.key
			values[l][id], ids = s, union(ids, id)
		}
	}
	values[general] = values[base]
	for _, l := range append([]*location{general}, list...) {
		lost := false
		for _, id := range ids {
			section, key, _ := strings.Cut(id, " ")
			v := values[l][id]
			switch t.done(v.from...); {
			case corsKeys[key] != "":
				t.writeCORS(l, key, v)
			case l.area.plain:
				t.out.put(section, l.area.files, key, v.value, v.from...)
			default:
				lost = lost || v.value != values[base][id].value
			}
		}
		if lost {
			t.say(l.d, "this pattern is no group, store path or extension, so what is in force here is not translated",
				"write keys for its groups to [headers] and [access]; links with a path in front need url_prefix")
		}
	}
	text := func(s *server) (all string) {
		for _, l := range s.open() {
			for _, v := range t.settingsOf(l) {
				all += fmt.Sprintln(l.area.files, v.key, v.value)
				t.done(v.from...)
			}
		}
		return all
	}
	for _, s := range t.kept[1:] {
		if text(s) != text(t.main) {
			t.say(append(named(s.d.block, "server_name"), s.d)[0], i18n.Sprintf(
				"its files have the headers and limits of %s: one gateway has the same for all names", t.main.title()),
				rowOf("listen").advice)
		}
	}
}

// base returns the block whose keys are those of all files: the server, or its only location with
// files.
func (t *translator) base() *location {
	if list := t.main.open(); len(list) == 1 && !t.main.self.serves {
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
		t.say(v.from[0], i18n.Sprintf("CORS is the same for all files: %s is %s", name, now), "")
	case name == "Access-Control-Allow-Origin" && l.d != nil && l.area.plain:
		s := t.out.section("headers", l.area.files)
		s.entries = append(s.entries, entry{key: name}, entry{key: "Access-Control-Expose-Headers"})
	}
}

// canonical are the names of fields with a meaning here. computed are those that the gateway
// computes.
var (
	canonical = words(`Access-Control-Allow-Origin Access-Control-Expose-Headers Access-Control-Allow-Headers
		Access-Control-Max-Age Access-Control-Allow-Methods Access-Control-Allow-Credentials Cache-Control
		Content-Disposition X-Content-Type-Options`)
	computed = words(`content-length content-type content-range content-encoding etag last-modified accept-ranges date
		server connection keep-alive transfer-encoding location allow x-cache age retry-after trailer upgrade alt-svc`)
)

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

var (
	origins = lazy(`^(\*|https?://[A-Za-z0-9.:\[\]_-]+)$`)
	seconds = lazy(`^\d{1,8}$`)
)

// fieldOf returns the field of add_header or expires. The value is empty if the gateway sends the
// field by itself, or cannot send it.
func (t *translator) fieldOf(d *directive) (name, value string) {
	if d.name == "expires" {
		return "Cache-Control", t.maxAge(d)
	}
	name, value = strings.TrimSuffix(d.arg(0), ":"), d.arg(1)
	for known := range canonical {
		if strings.EqualFold(name, known) {
			name = known
		}
	}
	lower := strings.ToLower(value)
	switch {
	case name == "X-Content-Type-Options" && lower == "nosniff": // always sent
	case name == "Content-Disposition" && strings.Contains(value, "$arg_"): // see writeNames
	case name == "Access-Control-Allow-Methods":
		t.note(d, "preflight requests (OPTIONS) are 204, and allow GET, HEAD and OPTIONS", "")
	case name == "Access-Control-Allow-Origin" && !origins().MatchString(value),
		name == "Access-Control-Allow-Credentials":
		t.say(d, "it needs a list of origins", "set cors_origin to origins such as https://www.example.com")
	case value == "$upstream_cache_status":
		t.out.set("gateway", "x_cache", "true", d)
	case computed[strings.ToLower(name)]:
		t.say(d, i18n.Sprintf("the gateway computes %s", name), "")
	case strings.Contains(value, "$"):
		t.say(d, "a field cannot hold a variable", "write a fixed value to [headers], or keep nginx in front")
	case name == "Access-Control-Max-Age" && seconds().MatchString(value):
		n, _ := strconv.Atoi(value)
		return name, strconv.Itoa(min(n, 365*86400))
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
		t.say(d, "the time of day, the time of the file and variables are not translated",
			"write a fixed Cache-Control to [headers]")
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
	parameters := "filename"
	add := func(d *directive) bool {
		m := argument().FindStringSubmatch(d.arg(1))
		if m == nil || !strings.EqualFold(d.arg(0), "Content-Disposition") {
			return false
		}
		if t.done(d); !slices.Contains(strings.Split(parameters, ", "), m[1]) {
			parameters += ", " + m[1]
		}
		t.out.put("gateway", selector{}, "filename_parameters", parameters, d)
		return true
	}
	for _, l := range blocksOf(t.kept...) {
		for _, d := range named(l.d.block, "add_header") {
			if add(d) {
				t.say(d, "without its parameter nginx sends an attachment without a name; here the file is shown",
					"[headers SELECTORS] Content-Disposition = attachment saves all files of a group or extension")
			}
		}
		for _, d := range named(l.d.block, "if") {
			if !strings.HasPrefix(d.arg(0), "$arg_") {
				continue
			}
			rest := without(named(d.block, "add_header"), add)
			if len(rest) == len(named(d.block, "add_header")) {
				continue
			}
			if t.done(d); len(d.args) > 2 && !anyName().MatchString(d.arg(2)) {
				t.say(d, "the name counts for all files and all names, not only for those of the condition", "")
			}
			for _, f := range rest {
				t.say(f, "it is in force only with the parameter, and not translated",
					"the gateway sends the Content-Type of the file alone")
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
			t.note(d, "requests within the burst are served at once, not delayed", "")
		}
		text := strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(rate, 'f', 4, 64), "0"), ".")
		return []setting{{"access", "requests_per_second", text, from},
			{"access", "requests_burst", strconv.Itoa(min(max(burst, 1), 1_000_000)), from},
			{"access", "unlimited", z.unlimited, z.from}}
	}
	return []setting{{"access", "unlimited", t.unlimited, nil}}
}
