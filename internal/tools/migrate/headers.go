package migrate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// computed are the fields that the gateway computes.
var computed = []string{"Content-Length", "Content-Type", "Content-Range", "Content-Encoding", "ETag", "Last-Modified",
	"Accept-Ranges", "Date", "Server", "Connection", "Keep-Alive", "Transfer-Encoding", "Location", "Allow", "X-Cache",
	"Age", "Retry-After", "Trailer", "Upgrade"}

// corsKeys are the keys for the fields of CORS that are sent with files.
var corsKeys = map[string]string{
	"access-control-allow-origin":   "cors_origin",
	"access-control-expose-headers": "cors_expose",
	"access-control-allow-headers":  "cors_headers",
	"access-control-max-age":        "cors_max_age",
}

// field is one field of a response.
type field struct {
	name, value string
	d           *directive
}

// is reports whether a field has the name, in any case.
func (f field) is(name string) bool { return strings.EqualFold(f.name, name) }

// isCORS reports whether a field is one of CORS.
func (f field) isCORS() bool { return strings.HasPrefix(strings.ToLower(f.name), "access-control-") }

// fieldsIn returns the fields that a block adds: add_header, and more_set_headers of headers-more.
func fieldsIn(block []*directive) (all []field) {
	for _, d := range named(block, "add_header", "more_set_headers") {
		if d.name == "add_header" {
			all = append(all, field{strings.TrimSuffix(d.arg(0), ":"), d.arg(1), d})
			continue
		}
		for _, arg := range d.args {
			if name, value, ok := strings.Cut(arg, ":"); ok {
				all = append(all, field{strings.TrimSpace(name), strings.TrimSpace(value), d})
			}
		}
	}
	return all
}

// fieldsOf returns the fields of the files of a location. The fields of CORS in an if on the method
// count for all methods, since sites set them for one method only; other fields in an if do not
// count.
func (t *translator) fieldsOf(s *server, l *location) (all []field) {
	for _, block := range s.chain(l) {
		if all = fieldsIn(block); len(all) > 0 {
			break
		}
	}
	for _, d := range named(l.d.block, "if") {
		if d.arg(0) == "$request_method" {
			all = append(all, slices.DeleteFunc(fieldsIn(d.block), func(f field) bool { return !f.isCORS() })...)
		}
	}
	return all
}

// translateHeaders writes Cache-Control, CORS, names of downloads and all other fields.
func (t *translator) translateHeaders() {
	t.translateNames()
	t.methodIfs()
	var names []string
	for _, f := range t.openFiles() {
		for _, field := range t.fieldsOf(f.s, f.l) {
			if !slices.ContainsFunc(names, field.is) {
				names = append(names, field.name)
			}
		}
	}
	if i := slices.IndexFunc(names, field{name: "Cache-Control"}.is); i >= 0 {
		names[i] = "Cache-Control"
	} else {
		names = append([]string{"Cache-Control"}, names...)
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
		if f.is(name) {
			add(t.fieldValue(f), f.d)
		}
	}
	a.value = strings.Join(values, ", ")
	return a
}

// fieldValue returns the translated value of a field. It is empty if the gateway sends the field by
// itself, or cannot send it.
func (t *translator) fieldValue(f field) string {
	name := strings.ToLower(f.name)
	switch {
	case name == "x-content-type-options" && strings.EqualFold(f.value, "nosniff"):
		t.done(f.d)
		return "" // always sent
	case name == "access-control-allow-methods":
		t.note(f.d, "preflight requests (OPTIONS) are 204, and allow GET, HEAD and OPTIONS", "")
		return ""
	case name == "access-control-allow-origin" && f.value == "$http_origin":
		t.note(f.d, "every origin is allowed by *; with credentials browsers want a list",
			"set cors_origin to the list of origins")
		return "*"
	case name == "access-control-allow-origin":
		list := strings.FieldsFunc(f.value, func(c rune) bool { return c == ' ' || c == ',' || c == ';' })
		if f.value == "*" || len(list) > 0 && !slices.ContainsFunc(list, func(o string) bool { return !isOrigin(o) }) {
			return strings.Join(list, ", ")
		}
		t.say(f.d, "this is no list of origins", "set cors_origin to origins such as https://www.example.com")
		return ""
	case name == "access-control-max-age":
		seconds := strings.TrimRight(f.value, "; ")
		if isPort(seconds) && len(seconds) <= 8 {
			return itoa(min(parsed(seconds), maxAgeOfCORS))
		}
		t.say(f.d, "this is no number of seconds", "set cors_max_age")
		return ""
	case strings.Contains(name, "cache") && f.value == "$upstream_cache_status":
		t.out.set("gateway", "x_cache", "true", f.d)
		if name != "x-cache" {
			t.note(f.d, "the name of the field is X-Cache", "")
		}
		return ""
	case name == "alt-svc" && strings.Contains(f.value, "h3"):
		t.say(f.d, "there is no HTTP/3", "clients use HTTP/2")
		return ""
	case name == "content-disposition" && strings.Contains(f.value, "$arg_"):
		return "" // see translateNames
	case slices.ContainsFunc(computed, func(c string) bool { return strings.EqualFold(c, f.name) }):
		t.say(f.d, "the gateway computes "+f.name, "")
		return ""
	case strings.Contains(f.value, "$"):
		t.say(f.d, "a field cannot hold a variable", "write a fixed value to [headers], or keep nginx in front")
		return ""
	case name == "content-disposition" && strings.HasPrefix(strings.ToLower(f.value), "attachment"):
		return "attachment"
	}
	return f.value
}

// maxAgeOfCORS is the largest cors_max_age, a year.
const maxAgeOfCORS = 365 * 86400

func parsed(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

var originPattern = regexp.MustCompile(`^https?://[A-Za-z0-9.:\[\]_-]+$`)

func isOrigin(text string) bool { return originPattern.MatchString(text) }

// maxAge translates expires to a value of Cache-Control.
func (t *translator) maxAge(d *directive) string {
	v := d.arg(0)
	switch {
	case v == "off":
		return ""
	case v == "max":
		return "max-age=315360000"
	case v == "epoch":
		return "no-cache"
	case strings.HasPrefix(v, "@"), v == "modified", strings.Contains(v, "$"):
		t.say(d, "the time of day, the time of the file and variables are not translated",
			"write a fixed Cache-Control to [headers]")
		return ""
	}
	seconds, ok := nginxSeconds(strings.TrimPrefix(v, "-"))
	switch {
	case !ok:
		t.say(d, "the time cannot be read", "write Cache-Control to [headers]")
		return ""
	case strings.HasPrefix(v, "-"):
		return "no-cache"
	}
	return fmt.Sprintf("max-age=%d", seconds)
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
		seconds += parsed(m[i+1]) * unit
	}
	return seconds, true
}

// writeField writes one field: with the key that the field has, or in sections of [headers].
func (t *translator) writeField(name string, values map[cell]string, from map[string][]*directive) {
	key, cors := corsKeys[strings.ToLower(name)]
	choices := t.universe.spread(values)
	switch {
	case len(from) == 0:
		return
	case cors:
		t.writeCORS(name, key, values, from)
		return
	case name == "Cache-Control" && len(choices) == 1:
		t.out.set("gateway", "cache_control", choices[0].value, from[choices[0].value]...)
		return
	}
	credentials := strings.EqualFold(name, "Access-Control-Allow-Credentials")
	if credentials && !strings.Contains(t.out.get("gateway", "cors_origin"), ".") {
		for _, d := range others(from, "") {
			t.say(d, "credentials need a list of origins, * is not enough", "set cors_origin to the list of origins")
		}
		return
	}
	t.writeChoices("headers", choices, from, name)
}

// writeCORS writes a key of CORS, which is for all files, and removes the field from files that do
// not have it.
func (t *translator) writeCORS(name, key string, values map[cell]string, from map[string][]*directive) {
	set := maps.Clone(values)
	maps.DeleteFunc(set, func(_ cell, v string) bool { return v == "" })
	value := t.universe.commonest(set)
	if value == "" {
		return
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

// methodIfs handles the ifs on the method: preflight requests, and methods that the gateway rejects
// by itself.
func (t *translator) methodIfs() {
	t.eachBlock(func(block []*directive) {
		for _, d := range named(block, "if") {
			if d.arg(0) != "$request_method" {
				continue
			}
			t.done(d)
			for _, inner := range d.block {
				switch fields := fieldsIn([]*directive{inner}); {
				case len(fields) > 0 && strings.HasPrefix(strings.ToLower(fields[0].name), "content-"):
					t.done(inner)
				case (len(fields) == 0 || !fields[0].isCORS()) && inner.name != "return" && !needsNothing[inner.name]:
					t.say(inner, "what is in force for one method only is not translated", "")
				}
			}
		}
	})
}

// eachBlock calls visit with the blocks of translated servers and of the locations of open files.
func (t *translator) eachBlock(visit func(block []*directive)) {
	seen := map[*directive]bool{}
	for _, f := range t.openFiles() {
		for _, d := range []*directive{f.s.d, f.l.d} {
			if !seen[d] {
				seen[d] = true
				visit(d.block)
			}
		}
	}
}

var argument = regexp.MustCompile(`\$\{?arg_([A-Za-z0-9_]+)\}?`)

// anyName are the conditions on a parameter that only test its presence.
var anyName = []string{"", "^(.+)", "^(.+)$", "(.+)", ".+", "^.+$", "^.+", "^(.*)$", "(.*)", ".", "^(.*)", "^[^ ]+"}

// translateNames translates the query parameter with the file name of a download, often attname.
func (t *translator) translateNames() {
	names := []string{"filename"}
	var from []*directive
	add := func(f field, condition *directive) {
		m := argument.FindStringSubmatch(f.value)
		if m == nil || !f.is("Content-Disposition") {
			return
		}
		t.done(f.d)
		names, from = union(names, m[1]), append(from, f.d)
		switch {
		case condition == nil:
			t.say(f.d, "without the parameter "+m[1]+" nginx sends an attachment without a name; here the file is "+
				"shown", "[headers SELECTORS] Content-Disposition = attachment saves all files of a group or extension")
		case len(condition.args) > 2 && !slices.Contains(anyName, condition.arg(2)):
			t.say(condition, "the name counts for all files and all names, not only for those of the condition", "")
		}
	}
	t.eachBlock(func(block []*directive) {
		for _, f := range fieldsIn(block) {
			add(f, nil)
		}
		for _, d := range named(block, "if") {
			fields := fieldsIn(d.block)
			if !strings.HasPrefix(d.arg(0), "$arg_") || !slices.ContainsFunc(fields, func(f field) bool {
				return f.is("Content-Disposition") && argument.MatchString(f.value)
			}) {
				continue
			}
			t.done(d)
			for _, inner := range d.block {
				if !t.handled[inner] && len(fieldsIn([]*directive{inner})) == 0 && !needsNothing[inner.name] {
					t.say(inner, "what is in force only for this condition is not translated", "")
				}
			}
			for _, f := range fields {
				switch add(f, d); {
				case f.is("Content-Type"):
					t.say(f.d, "nginx sends a second Content-Type line; the gateway sends that of the file alone, "+
						"with Content-Disposition: attachment", "")
				case !f.is("Content-Disposition"):
					t.say(f.d, "it is in force only with the parameter, and not translated", "")
				}
			}
		}
	})
	if len(from) > 0 {
		t.out.set("gateway", "filename_parameters", strings.Join(names, ", "), from...)
	}
}
