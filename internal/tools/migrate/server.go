package migrate

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// server is one server block.
type server struct {
	d         *directive
	http      []*directive // directives of the http block around it
	locations []*location
	names     []string
	listens   []listen
	cells     map[cell]outcome       // outcome of each sample
	redirect  *directive             // redirect of the whole server to https; nil = none
	left      *directive             // check for which the server has to stay in nginx; nil = none
	classes   func() ([]class, bool) // classes of its files: see translator.classes
	unclear   *directive             // location with an expression that is not read as nginx does
	elsewhere string                 // prefix under which the server serves files in another form
}

// location is one location block.
type location struct {
	d      *directive
	op     string // empty, =, ^~, ~, ~* or @
	path   string
	re     *regexp.Regexp // expression of ~ and ~*; nil = it cannot be read
	loose  bool           // re matches more than the expression of nginx
	nested []*location
	up     *location
	closed int // number of kinds of files that are closed for its check of a part of them
}

func (l *location) isExpression() bool { return strings.HasPrefix(l.op, "~") }

// chain returns the blocks in force in a location, innermost first.
func (s *server) chain(l *location) (blocks [][]*directive) {
	for ; l != nil; l = l.up {
		blocks = append(blocks, l.d.block)
	}
	return append(blocks, s.d.block, s.http)
}

// named returns the directives of a block with one of the names.
func named(block []*directive, names ...string) (found []*directive) {
	for _, d := range block {
		if slices.Contains(names, d.name) {
			found = append(found, d)
		}
	}
	return found
}

// inForce returns the directives of the innermost block that has any of them: nginx replaces those
// of outer blocks and does not add to them.
func inForce(chain [][]*directive, names ...string) []*directive {
	for _, block := range chain {
		if found := named(block, names...); len(found) > 0 {
			return found
		}
	}
	return nil
}

// last returns the last directive in force, or nil.
func last(chain [][]*directive, names ...string) *directive {
	if found := inForce(chain, names...); len(found) > 0 {
		return found[len(found)-1]
	}
	return nil
}

// union appends the values that a list does not have.
func union[T comparable](list []T, values ...T) []T {
	for _, v := range values {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// collect collects the http, server and location blocks of the configuration.
func (t *translator) collect() {
	for _, block := range named(t.tree.root, "http") {
		t.done(block)
		t.http = append(t.http, block.block...)
		for _, d := range named(block.block, "server") {
			s := &server{d: d, http: block.block, cells: map[cell]outcome{}}
			s.locations = t.locationsIn(d.block, nil)
			for _, n := range named(d.block, "server_name") {
				s.names = append(s.names, n.args...)
			}
			s.listens = listensOf(s)
			s.classes = sync.OnceValues(func() ([]class, bool) { return t.classes(s) })
			t.all = append(t.all, s)
		}
	}
}

// locationsIn returns the locations of a block.
func (t *translator) locationsIn(block []*directive, up *location) (all []*location) {
	for _, d := range named(block, "location") {
		l := &location{d: d, up: up}
		l.op, l.path = locationPattern(d.args)
		if l.isExpression() {
			l.re, l.loose = t.regex(d, l.path, l.op == "~*")
		}
		l.nested = t.locationsIn(d.block, l)
		all = append(all, l)
	}
	return all
}

// locationPattern splits the arguments of a location; the operator may be a part of the pattern.
func locationPattern(args []string) (op, path string) {
	switch {
	case len(args) == 0:
		return "", ""
	case len(args) > 1:
		return args[0], args[1]
	}
	for _, op := range []string{"~*", "^~", "=", "~", "@"} {
		if rest, ok := strings.CutPrefix(args[0], op); ok {
			return op, rest
		}
	}
	return "", args[0]
}

var assertion = regexp.MustCompile(`\(\?(?:=|!|<=|<!)`)

// withoutAssertions removes the assertions of PCRE, which Go does not have.
func withoutAssertions(pattern string) string {
	for at := assertion.FindStringIndex(pattern); at != nil; at = assertion.FindStringIndex(pattern) {
		end := at[1]
		for depth := 1; end < len(pattern) && depth > 0; end++ {
			switch pattern[end] {
			case '\\':
				end++
			case '(':
				depth++
			case ')':
				depth--
			}
		}
		pattern = pattern[:at[0]] + pattern[min(end, len(pattern)):]
	}
	return pattern
}

// compile compiles an expression of PCRE. An assertion is left out: the expression is loose then,
// since it matches more. re is nil if the rest cannot be compiled either.
func compile(pattern string) (re *regexp.Regexp, loose bool) {
	re, err := regexp.Compile(pattern)
	if err == nil {
		return re, false
	}
	if re, err = regexp.Compile(withoutAssertions(pattern)); err != nil {
		return nil, true
	}
	return re, true
}

// regex compiles the expression of a location, and adds a finding if it is not the one of nginx.
func (t *translator) regex(d *directive, pattern string, anyCase bool) (re *regexp.Regexp, loose bool) {
	if anyCase {
		pattern = "(?i)" + pattern
	}
	switch re, loose = compile(pattern); {
	case re == nil:
		t.say(d, "the expression cannot be read, so the files that it is for are not known",
			"translate this location by hand")
	case loose:
		t.note(d, "its assertion ((?! ) and the like) was left out to find the files that it is for",
			"compare the result with the pattern")
	}
	return re, loose
}

// find returns the location that nginx chooses for a path: the longest prefix, then the first
// expression, unless the prefix has ^~. final means that no expression of an outer block is tried.
func find(locations []*location, path string) (chosen *location, final bool) {
	for _, l := range locations {
		switch l.op {
		case "=":
			if l.path == path {
				return l, true
			}
		case "", "^~":
			if strings.HasPrefix(path, l.path) && (chosen == nil || len(l.path) > len(chosen.path)) {
				chosen = l
			}
		}
	}
	if prefix := chosen; prefix != nil {
		if inner, final := find(prefix.nested, path); inner != nil {
			if chosen = inner; final {
				return chosen, true
			}
		}
		if prefix.op == "^~" {
			return chosen, false
		}
	}
	for _, l := range locations {
		if l.re != nil && l.re.MatchString(path) {
			if inner, _ := find(l.nested, path); inner != nil {
				return inner, true
			}
			return l, true
		}
	}
	return chosen, false
}

// every returns all locations of a server, outer ones first.
func (s *server) every() []*location { return withNested(s.locations) }

func withNested(locations []*location) (all []*location) {
	for _, l := range locations {
		all = append(append(all, l), withNested(l.nested)...)
	}
	return all
}

// byName returns a named location.
func (s *server) byName(name string) (found *location) {
	for _, l := range s.every() {
		if l.op == "@" && "@"+l.path == name {
			found = l
		}
	}
	return found
}

// title returns the server as findings name it: by its names, or its address.
func (s *server) title() string {
	if len(s.names) > 0 && s.names[0] != "_" && s.names[0] != "" {
		return oneLine(strings.Join(s.names, " "), 60)
	}
	return "the server on " + s.listens[0].address
}
