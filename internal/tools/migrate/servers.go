package migrate

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// server is one server block.
type server struct {
	d         *directive
	http      []*directive // directives of the http block around it
	locations []*location
	names     []string
	listens   []listen
	left      *directive // the directive for which the server stays in nginx; nil = it is translated
	found     map[cell]place
}

// location is one location block, or the server itself, which has no pattern.
type location struct {
	d      *directive
	op     string // empty, =, ^~, ~, ~* or @
	path   string
	pat    pattern
	nested []*location
	up     *location
	serves bool       // files of FastDFS
	image  bool       // pictures that it changes
	check  *directive // check that the gateway does not have
	reject *directive // return with a 4xx
	rule   attribute  // rules of access
}

// place is where nginx serves a kind of files.
type place struct {
	loc    *location  // nil = nowhere
	check  *directive // one that may hold for some of the files
	reject *directive // nginx rejects all of them
}

func (p place) open() bool {
	return p.loc != nil && p.loc.serves && !p.loc.image && p.check == nil && p.reject == nil
}

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

// first returns the first directive of a block with one of the names, or nil.
func first(block []*directive, names ...string) *directive {
	if found := named(block, names...); len(found) > 0 {
		return found[0]
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

// collect collects the servers that serve FastDFS, and decides which are translated.
func (t *translator) collect() {
	for _, block := range named(t.tree.root, "http") {
		t.http = append(t.http, block.block...)
		for _, d := range named(block.block, "server") {
			s := &server{d: d, http: block.block, found: map[cell]place{}}
			for _, n := range named(d.block, "server_name") {
				s.names = append(s.names, n.args...)
			}
			s.listens = listensOf(s)
			s.locations = t.locationsIn(s, d.block, nil)
			t.all = append(t.all, s)
		}
	}
	t.servers = slices.DeleteFunc(slices.Clone(t.all), func(s *server) bool {
		return !slices.ContainsFunc(s.every(), func(l *location) bool { return l.serves }) &&
			first(s.d.block, "ngx_fastdfs_module") == nil
	})
	t.groupInURL = t.Module.GroupInURL
	if t.ModuleFile == "" {
		for _, s := range t.servers {
			for _, l := range s.every() {
				t.groupInURL = t.groupInURL || l.serves && strings.Contains(l.path, "group") ||
					strings.Count(l.path, "/") > 1 && !strings.HasPrefix(l.path, "/M")
			}
		}
	}
	slices.SortStableFunc(t.servers, func(a, b *server) int { return isDefault(b) - isDefault(a) })
	t.findFiles()
	t.leave()
}

// every returns all locations of a server, outer ones first.
func (s *server) every() []*location { return withNested(s.locations) }

func withNested(locations []*location) (all []*location) {
	for _, l := range locations {
		all = append(append(all, l), withNested(l.nested)...)
	}
	return all
}

// locationsIn returns the locations of a block.
func (t *translator) locationsIn(s *server, block []*directive, up *location) (all []*location) {
	for _, d := range named(block, "location") {
		l := &location{d: d, up: up}
		l.op, l.path = locationPattern(d.args)
		l.pat = newPattern(l.op, l.path)
		l.serves = t.servesFiles(s, l)
		filter := first(d.block, "image_filter", "small_light")
		l.image = filter != nil && filter.arg(0) != "off"
		l.nested = t.locationsIn(s, d.block, l)
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

var (
	filePath = regexp.MustCompile(`^[\^/]*(\(\??:?)?group|(^|/|\()\(?M[0-9A-F(\[]`)
	fileName = regexp.MustCompile(`(?i)fdfs|fastdfs|group\d|storage`)
)

// servesFiles reports whether a location serves files of FastDFS: by the module, or with a path of
// files by proxy_pass or a folder.
func (t *translator) servesFiles(s *server, l *location) bool {
	block := l.d.block
	pass := first(block, "proxy_pass")
	switch {
	case first(block, "ngx_fastdfs_module") != nil:
		return true
	case first(block, "proxy_cache_purge", "stub_status", "empty_gif") != nil || l.op == "=" || l.op == "@":
		return false
	case pass != nil:
		return filePath.MatchString(l.path) || l.path == "/" && fileName.MatchString(target(pass))
	case first(block, "return") != nil || first(block, applications...) != nil:
		return false
	case l.up != nil && l.up.serves:
		return true
	}
	return filePath.MatchString(l.path) && last(s.chain(l), "root", "alias") != nil
}

// findFiles finds where nginx serves each kind of files.
func (t *translator) findFiles() {
	for i := range t.Module.StorePaths {
		t.universe.paths = union(t.universe.paths, storePathName(i))
	}
	if t.groupInURL {
		t.universe.groups = slices.Clone(t.Module.Groups)
	}
	for _, s := range t.servers {
		for _, l := range s.every() {
			if first(l.d.block, "stub_status", "proxy_cache_purge") == nil {
				t.universe.add(l.pat, t.groupInURL, t.Types)
			}
			t.addConditions(l.d.block)
		}
		t.addConditions(s.d.block)
	}
	fits := t.universe.finish(t.groupInURL)
	for _, s := range t.servers {
		if !fits || s.globs()*len(t.universe.all) > maxMatches {
			s.left = s.d
			t.say(s.d, "its patterns name more groups, store paths and extensions than the gateway has selectors for",
				"translate it in parts")
			continue
		}
		for _, l := range s.every() {
			t.judge(s, l)
		}
		server := &location{d: s.d, serves: first(s.d.block, "ngx_fastdfs_module") != nil}
		t.judge(s, server)
		for _, c := range t.universe.all {
			s.found[c] = t.find(s, server, c)
		}
	}
}

// maxMatches bounds the comparisons of patterns with kinds of files.
const maxMatches = 20_000_000

// globs returns the number of globs of all patterns.
func (s *server) globs() (n int) {
	for _, l := range s.every() {
		n += len(l.pat.globs)
	}
	return n
}

func (t *translator) addConditions(block []*directive) {
	for _, d := range named(block, "if", "rewrite") {
		if p, ok := conditionPattern(d); ok {
			t.universe.add(p, t.groupInURL, t.Types)
		}
	}
}

// candidate is a location that nginx may choose for files of a kind.
type candidate struct {
	l     *location
	all   bool // it is for all files of the kind
	exact bool // also for those whose extension has another case
}

// newCandidate compares a location with a kind of files.
func (t *translator) newCandidate(l *location, c cell) (x candidate, can bool) {
	can, all := l.pat.match(t.universe.shapes[c])
	exact := all
	if all && l.op == "~" && !l.pat.fold && c.ext != "" {
		_, exact = l.pat.match(t.universe.shapes[cell{c.group, c.path, ""}])
	}
	return candidate{l, all, exact}, can
}

// candidates returns the locations that nginx may choose, in its order; the last one holds for all
// other files of the kind. final means that no expression of an outer block is tried.
func (t *translator) candidates(locations []*location, c cell) (list []candidate, final bool) {
	var prefixes, inner []candidate
	byLength := slices.SortedStableFunc(slices.Values(locations), func(a, b *location) int {
		return len(b.path) - len(a.path)
	})
	skip := false
	for _, l := range byLength {
		x, can := t.newCandidate(l, c)
		switch {
		case strings.HasPrefix(l.op, "~") || l.op == "@" || !can:
			continue
		case l.op == "=":
			list = append(list, candidate{l: l})
			continue
		}
		in, done := t.candidates(l.nested, c)
		inner = append(inner, in...)
		prefixes = append(prefixes, x)
		if x.all {
			if done {
				return append(list, inner...), true
			}
			skip = l.op == "^~" && len(prefixes) == 1
			break
		}
	}
	for _, l := range locations {
		if x, can := t.newCandidate(l, c); strings.HasPrefix(l.op, "~") && !skip && can {
			in, _ := t.candidates(l.nested, c)
			list = append(append(list, in...), x)
			if x.exact {
				early := slices.DeleteFunc(append(inner, prefixes...), func(p candidate) bool { return p.all })
				return append(early, list...), true
			}
		}
	}
	return append(append(list, inner...), prefixes...), false
}

// find returns where a server serves a kind of files. A check in any location that may be for some
// of them is a check for the kind.
func (t *translator) find(s *server, server *location, c cell) (p place) {
	list, _ := t.candidates(s.locations, c)
	list = append(list, candidate{server, true, true})
	var maybe *location // serves some of the files
	for i, x := range list {
		if p.check == nil {
			p.check = x.l.check
		}
		if p.loc == nil {
			if x.all {
				p.loc, p.reject = x.l, x.l.reject
			} else if x.l.reject != nil && p.check == nil {
				p.check = x.l.reject
			}
			if !x.all && x.l.serves && !x.l.image && x.l.check == nil && maybe == nil {
				maybe = x.l
			}
		}
		if x.exact {
			list = list[:i+1]
			break
		}
	}
	if p.check == nil {
		p.check = t.conditionOn(s, p.loc, c)
	}
	for _, x := range list {
		if x.l.rule.value != "" && x.l.rule.value != p.loc.rule.value && p.check == nil {
			p.check = x.l.rule.from[0]
		}
	}
	if maybe != nil && p.check == nil && !p.loc.serves && p.loc.path == "" || maybe != nil && p.reject != nil {
		p.loc, p.reject = maybe, nil
	}
	return p
}

// leave decides which servers stay in nginx: those whose files are all closed, and those that have
// a check or a rule for files that another server serves without it.
func (t *translator) leave() {
	for _, s := range t.servers {
		var check *directive
		open := false
		for _, c := range t.universe.all {
			p := s.found[c]
			if open = open || p.open(); p.loc != nil && check == nil {
				check = p.check
			}
		}
		if s.left == nil && !open {
			s.left = s.d
			if check != nil {
				s.left = check
			}
		}
	}
	for again := true; again; {
		again = false
		for _, s := range t.servers {
			if d := t.opened(s); s.left == nil && d != nil {
				s.left, again = d, true
			}
		}
	}
	t.kept = slices.DeleteFunc(slices.Clone(t.servers), func(s *server) bool { return s.left != nil })
}

// opened returns a check or rule of a server whose files another translated server serves without
// it, or nil.
func (t *translator) opened(s *server) *directive {
	for _, o := range t.servers {
		if o == s || o.left != nil {
			continue
		}
		for _, c := range t.universe.all {
			mine, its := s.found[c], o.found[c]
			if its.open() && !mine.open() && o.hides(s) {
				return cmp.Or(mine.check, mine.reject, o.d)
			}
			if !its.open() || mine.loc == nil {
				continue
			}
			switch {
			case mine.check != nil && mine.loc.serves:
				return mine.check
			case mine.open() && mine.loc.rule.value != "" && mine.loc.rule.value != its.loc.rule.value:
				return mine.loc.rule.from[0]
			}
		}
	}
	return nil
}

// hides reports whether a server listens on addresses of its own only, and another one on others.
func (s *server) hides(other *server) bool {
	return !slices.ContainsFunc(s.listens, func(l listen) bool { return l.host() == "" || l.isLoopback() }) &&
		slices.ContainsFunc(other.listens, func(l listen) bool {
			return !slices.ContainsFunc(s.listens, func(own listen) bool { return own.host() == l.host() })
		})
}

// title returns the server as findings name it: by its names, or its address.
func (s *server) title() string {
	if len(s.names) > 0 && s.names[0] != "_" && s.names[0] != "" {
		return oneLine(strings.Join(s.names, " "), 60)
	}
	return "the server on " + s.listens[0].address
}
