package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// computed are the fields that the gateway computes.
var computed = []string{"Content-Length", "Content-Type", "Content-Range", "Content-Encoding", "ETag", "Last-Modified",
	"Accept-Ranges", "Date", "Server", "Connection", "Keep-Alive", "Transfer-Encoding", "Location", "Allow", "X-Cache",
	"Age", "Retry-After", "Trailer", "Upgrade", "Alt-Svc"}

// corsKeys are the keys for the fields of CORS that are sent with files.
var corsKeys = map[string]string{
	"Access-Control-Allow-Origin":   "cors_origin",
	"Access-Control-Expose-Headers": "cors_expose",
	"Access-Control-Allow-Headers":  "cors_headers",
	"Access-Control-Max-Age":        "cors_max_age",
}

// field is one field of a response.
type field struct {
	name, value string
	d           *directive
}

// fieldsIn returns the fields that a block adds.
func fieldsIn(block []*directive) (all []field) {
	for _, d := range named(block, "add_header") {
		name := strings.TrimSuffix(d.arg(0), ":")
		for known := range corsKeys {
			if strings.EqualFold(name, known) {
				name = known
			}
		}
		if strings.EqualFold(name, "Cache-Control") {
			name = "Cache-Control"
		}
		all = append(all, field{name, d.arg(1), d})
	}
	return all
}

// fieldsOf returns the fields of the files of a location. The fields of CORS in an if on the method
// count for all methods, since sites set them for one method only.
func (t *translator) fieldsOf(s *server, l *location) (all []field) {
	for _, block := range s.chain(l) {
		if all = fieldsIn(block); len(all) > 0 {
			break
		}
	}
	for _, d := range named(l.d.block, "if") {
		if d.arg(0) != "$request_method" {
			continue
		}
		t.done(d)
		for _, f := range fieldsIn(d.block) {
			if strings.HasPrefix(f.name, "Access-Control-") {
				all = append(all, f)
			}
			t.done(f.d)
		}
		t.done(named(d.block, "return")...) // of a preflight, or of methods that the gateway rejects
	}
	return all
}

// translateHeaders writes Cache-Control, CORS, names of downloads and all other fields.
func (t *translator) translateHeaders() {
	t.translateNames()
	names := []string{"Cache-Control"}
	for _, f := range t.openFiles() {
		for _, field := range t.fieldsOf(f.s, f.l) {
			names = union(names, field.name)
		}
	}
	for _, name := range names {
		values, from := t.perCell(func(s *server, l *location) attribute { return t.fieldOf(s, l, name) })
		t.writeField(name, values, from)
	}
}

// fieldOf returns the value of one field for the files of a location.
func (t *translator) fieldOf(s *server, l *location, name string) (a attribute) {
	var values []string
	add := func(value string, d *directive) {
		t.done(d)
		if value != "" && !slices.Contains(values, value) {
			values = append(values, value)
			a.from = append(a.from, d)
		}
	}
	if d := last(s.chain(l), "expires"); d != nil && name == "Cache-Control" {
		add(t.maxAge(d), d)
	}
	for _, f := range t.fieldsOf(s, l) {
		if f.name == name {
			add(t.fieldValue(f), f.d)
		}
	}
	a.value = strings.Join(values, ", ")
	return a
}

var (
	origins = regexp.MustCompile(`^(\*|https?://[A-Za-z0-9.:\[\]_-]+)$`)
	seconds = regexp.MustCompile(`^\d{1,8}$`)
)

// fieldValue returns the translated value of a field. It is empty if the gateway sends the field by
// itself, or cannot send it.
func (t *translator) fieldValue(f field) string {
	switch {
	case strings.EqualFold(f.name, "X-Content-Type-Options") && strings.EqualFold(f.value, "nosniff"):
		return "" // always sent
	case f.name == "Access-Control-Allow-Methods":
		t.note(f.d, "preflight requests (OPTIONS) are 204, and allow GET, HEAD and OPTIONS", "")
		return ""
	case f.name == "Access-Control-Allow-Origin" && !origins.MatchString(f.value),
		f.name == "Access-Control-Allow-Credentials":
		t.say(f.d, "it needs a list of origins", "set cors_origin to origins such as https://www.example.com")
		return ""
	case f.name == "Access-Control-Max-Age" && seconds.MatchString(f.value):
		n, _ := strconv.ParseInt(f.value, 10, 64)
		return itoa(min(n, maxAgeOfCORS))
	case f.value == "$upstream_cache_status":
		t.out.set("gateway", "x_cache", "true", f.d)
		return ""
	case f.name == "Content-Disposition" && strings.Contains(f.value, "$arg_"):
		return "" // see translateNames
	case slices.ContainsFunc(computed, func(c string) bool { return strings.EqualFold(c, f.name) }):
		t.say(f.d, "the gateway computes "+f.name, "")
		return ""
	case strings.Contains(f.value, "$"):
		t.say(f.d, "a field cannot hold a variable", "write a fixed value to [headers], or keep nginx in front")
		return ""
	case f.name == "Content-Disposition" && strings.HasPrefix(strings.ToLower(f.value), "attachment"):
		return "attachment"
	}
	return f.value
}

// maxAgeOfCORS is the largest cors_max_age, a year.
const maxAgeOfCORS = 365 * 86400

// maxAge translates expires to a value of Cache-Control.
func (t *translator) maxAge(d *directive) string {
	switch v := d.arg(0); v {
	case "off":
		return ""
	case "max":
		return "max-age=315360000"
	case "epoch":
		return "no-cache"
	default:
		seconds, ok := nginxSeconds(strings.TrimPrefix(v, "-"))
		switch {
		case !ok:
			t.say(d, "the time of day, the time of the file and variables are not translated",
				"write a fixed Cache-Control to [headers]")
			return ""
		case strings.HasPrefix(v, "-"):
			return "no-cache"
		}
		return fmt.Sprintf("max-age=%d", seconds)
	}
}

var nginxTime = regexp.MustCompile(`^(?:(\d+)y)?(?:(\d+)M)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?$`)

// nginxSeconds parses a time of nginx, such as 30d, 1h30m or 3600.
func nginxSeconds(v string) (seconds int64, ok bool) {
	m := nginxTime.FindStringSubmatch(strings.ReplaceAll(v, " ", ""))
	if m == nil || m[0] == "" {
		return 0, false
	}
	for i, unit := range []int64{365 * 86400, 30 * 86400, 7 * 86400, 86400, 3600, 60, 1} {
		if len(m[i+1]) > 9 {
			return 0, false
		}
		n, _ := strconv.ParseInt(m[i+1], 10, 64)
		seconds += n * unit
	}
	return seconds, true
}

// writeField writes one field: with the key that the field has, or in sections of [headers].
func (t *translator) writeField(name string, values map[cell]string, from map[string][]*directive) {
	key, cors := corsKeys[name]
	choices := t.universe.spread(values)
	switch {
	case len(from) == 0:
	case cors:
		t.writeCORS(name, key, values, from)
	case name == "Cache-Control" && len(choices) == 1 && choices[0].forAll():
		t.out.set("gateway", "cache_control", choices[0].value, from[choices[0].value]...)
	default:
		t.writeChoices("headers", choices, from, name)
	}
}

// writeCORS writes a key of CORS, which is for all files, and removes the field from files that do
// not have it.
func (t *translator) writeCORS(name, key string, values map[cell]string, from map[string][]*directive) {
	value := ""
	for _, c := range t.universe.all {
		if value == "" {
			value = values[c]
		}
	}
	for _, d := range others(from, value) {
		t.say(d, "CORS is the same for all files: "+name+" is "+value, "")
	}
	t.out.set("gateway", key, value, from[value]...)
	for _, c := range t.universe.all {
		if _, open := values[c]; !open {
			values[c] = value
		}
	}
	for _, c := range t.universe.spread(values) {
		if c.value == "" && key == "cors_origin" && !c.forAll() {
			t.out.set(c.name("headers"), name, "", from[""]...)
			t.out.set(c.name("headers"), "Access-Control-Expose-Headers", "")
		}
	}
}

// eachBlock calls visit with the blocks of translated servers and of the locations of open files.
func (t *translator) eachBlock(visit func(block []*directive)) {
	var seen []*directive
	for _, f := range t.openFiles() {
		for _, d := range []*directive{f.s.d, f.l.d} {
			if !slices.Contains(seen, d) {
				seen = append(seen, d)
				visit(d.block)
			}
		}
	}
}

var (
	argument = regexp.MustCompile(`\$\{?arg_([A-Za-z0-9_]+)\}?`)
	anyName  = regexp.MustCompile(`^\^?\(?(\.|\[\^ \])[+*]?\)?\$?$`) // an expression for any name
)

// translateNames translates the query parameter with the file name of a download, often attname.
func (t *translator) translateNames() {
	names := []string{"filename"}
	var from []*directive
	add := func(f field) bool {
		m := argument.FindStringSubmatch(f.value)
		if m == nil || f.name != "Content-Disposition" {
			return false
		}
		t.done(f.d)
		names, from = union(names, m[1]), append(from, f.d)
		return true
	}
	t.eachBlock(func(block []*directive) {
		for _, f := range fieldsIn(block) {
			if add(f) {
				t.say(f.d, "without its parameter nginx sends an attachment without a name; here the file is shown",
					"[headers SELECTORS] Content-Disposition = attachment saves all files of a group or extension")
			}
		}
		for _, d := range named(block, "if") {
			fields := fieldsIn(d.block)
			if !strings.HasPrefix(d.arg(0), "$arg_") || !slices.ContainsFunc(fields, add) {
				continue
			}
			if t.done(d); len(d.args) > 2 && !anyName.MatchString(d.arg(2)) {
				t.say(d, "the name counts for all files and all names, not only for those of the condition", "")
			}
			for _, f := range fields {
				if f.name != "Content-Disposition" {
					t.say(f.d, "it is in force only with the parameter, and not translated",
						"the gateway sends the Content-Type of the file alone")
				}
			}
		}
	})
	if len(from) > 0 {
		t.out.set("gateway", "filename_parameters", strings.Join(names, ", "), from...)
	}
}
