package migrate

import (
	"cmp"
	"slices"
	"strings"
)

// server is one server block.
type server struct {
	d         *directive
	http      []*directive // directives of the http block around it
	names     []string
	listens   []listen
	self      *location   // the block of the server
	locations []*location // outer ones first
	left      *directive  // the directive for which the server stays in nginx; nil = it is translated
}

// location is one location block, or the block of a server.
type location struct {
	s      *server
	d      *directive
	op     string // empty, =, ^~, ~, ~* or @
	path   string
	area   area
	up     *location
	serves bool       // files of FastDFS
	image  bool       // pictures that it changes
	reject *directive // no file is served
	rule   rule       // also the one that closes files behind a check
	parts  []part
}

// part is a condition on the path, or a rewrite, that decides about some files.
type part struct {
	d     *directive
	outer selector
}

// chain returns the blocks in force in a location, innermost first.
func (l *location) chain() (blocks [][]*directive) {
	s := l.s
	for ; l != nil && l != s.self; l = l.up {
		blocks = append(blocks, l.d.block)
	}
	return append(blocks, s.d.block, s.http)
}

// isOpen reports whether a location serves files, to some clients at least.
func (l *location) isOpen() bool { return l.serves && !l.image && !l.rule.closes() && l.reject == nil }

// named returns the directives of a block with one of the names.
func named(block []*directive, names ...string) (found []*directive) {
	for _, d := range block {
		if slices.Contains(names, d.name) {
			found = append(found, d)
		}
	}
	return found
}

// first returns the first directive of a block with one of the names, or nil.
func first(block []*directive, names ...string) *directive {
	return append(named(block, names...), nil)[0]
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
	found := append([]*directive{nil}, inForce(chain, names...)...)
	return found[len(found)-1]
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

// without returns the elements of a list for which drop is false.
func without[T any](list []T, drop func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), drop)
}

// blocksOf returns the blocks of servers and all their locations.
func blocksOf(servers ...*server) (all []*location) {
	for _, s := range servers {
		all = append(append(all, s.self), s.locations...)
	}
	return all
}

// collect collects the servers that serve FastDFS, and decides which are translated.
func (t *translator) collect() {
	for _, block := range named(t.tree.root, "http") {
		t.http = append(t.http, block.block...)
		for _, d := range named(block.block, "server") {
			s := &server{d: d, http: block.block}
			for _, n := range named(d.block, "server_name") {
				s.names = append(s.names, n.args...)
			}
			s.self = &location{s: s, d: d, area: everything, serves: first(d.block, "ngx_fastdfs_module") != nil}
			s.listens = listensOf(s)
			s.addLocations(d.block, nil)
			t.all = append(t.all, s)
		}
	}
	t.servers = without(t.all, func(s *server) bool {
		return !slices.ContainsFunc(blocksOf(s), func(l *location) bool { return l.serves })
	})
	t.names = names{t.Module.GroupInURL, t.Module.Groups}
	for _, l := range blocksOf(t.servers...) { // without mod_fastdfs.conf
		t.names.grouped = t.names.grouped || t.ModuleFile == "" && l.serves && grouped().MatchString(l.path)
	}
	for _, s := range t.servers {
		for _, l := range s.locations {
			l.setArea(t.names)
		}
	}
	for _, l := range blocksOf(t.servers...) {
		t.judge(l)
	}
	isDefault := func(s *server) bool {
		return slices.ContainsFunc(s.listens, func(l listen) bool {
			return l.d.has("default_server") || l.d.has("default")
		})
	}
	others := without(t.servers, isDefault)
	t.servers = append(without(t.servers, func(s *server) bool { return slices.Contains(others, s) }), others...)
	t.choose()
}

// addLocations adds the locations of a block.
func (s *server) addLocations(block []*directive, up *location) {
	for _, d := range named(block, "location") {
		l := &location{s: s, d: d, up: up}
		l.op, l.path = locationPattern(d.args)
		l.serves = l.servesFiles()
		filter := first(d.block, "image_filter", "small_light")
		l.image = filter != nil && filter.arg(0) != "off" && argumentForms[filter.arg(1)+" "+filter.arg(2)] == nil ||
			slices.ContainsFunc(makersOf(d.block), func(d *directive) bool { return isMaker(d) && isForLinks(d) })
		s.locations = append(s.locations, l)
		s.addLocations(d.block, l)
	}
}

// locationPattern splits the arguments of a location; the operator may be a part of the pattern.
func locationPattern(args []string) (op, path string) {
	m := operator().FindStringSubmatch(strings.Join(args, " "))
	return m[1], m[2]
}

var (
	operator = lazy(`^(~\*|\^~|=|~|@|) *([^\x00]*)$`)
	filePath = lazy(`^[\^/]*(\(\??:?)?group|(^|/|\()\(?M[0-9A-F(\[]`)
	grouped  = lazy(`group|[^/]/M[0-9A-F(\[]`)
	fileName = lazy(`(?i)fdfs|fastdfs|group\d|storage`)
)

// servesFiles reports whether a location serves files of FastDFS: by the module, or with a path of
// files by proxy_pass or a folder.
func (l *location) servesFiles() bool {
	block := l.d.block
	pass := first(block, "proxy_pass")
	switch {
	case first(block, "ngx_fastdfs_module") != nil:
		return true
	case first(block, noFiles...) != nil || l.op == "=" || l.op == "@":
		return false
	case pass != nil:
		return filePath().MatchString(l.path) || l.path == "/" && fileName().MatchString(target(pass))
	case first(block, "return") != nil || first(block, applications...) != nil:
		return false
	}
	return l.up != nil && l.up.serves || filePath().MatchString(l.path) && last(l.chain(), "root", "alias") != nil
}

// setArea finds the area of a location. A nested one has the places or the extensions of the outer
// one. Whether nginx takes it before others cannot be told from the patterns, so it opens nothing;
// nor does a prefix that excludes expressions, and has a longer prefix in it, which does not.
func (l *location) setArea(names names) {
	l.area = areaOf(l.op, l.path, names)
	if l.up != nil || l.op == "^~" && slices.ContainsFunc(l.s.locations, func(o *location) bool {
		return o.up == nil && o.op == "" && len(o.path) > len(l.path) && strings.HasPrefix(o.path, l.path)
	}) {
		l.area.opens = false
	}
	if l.up == nil {
		return
	}
	a, up := &l.area, l.up.area
	a.none = a.none || up.none
	a.plain = a.plain && up.plain && len(a.files.places)*len(up.files.places) == 0 && len(up.files.exts) == 0
	a.files.places = append(a.files.places, up.files.places...)
	if len(a.outer.places) == 0 {
		a.outer.places = up.outer.places
	}
	if len(a.outer.exts) == 0 {
		a.outer.exts = up.outer.exts
	}
}

// choose decides which servers are translated: the first one with open files, and those with the
// same checks and rules on the same addresses. Host names do not separate them, since a client
// chooses the name. All others stay in nginx.
func (t *translator) choose() {
	var open []*server
	limits := map[*server]string{}
	for _, s := range t.servers {
		s.left = s.d
		alone := newDocument()
		if t.writeAccess(newDocument(), []*server{s}, nil, true) {
			open = append(open, s)
			t.writeAccess(alone, []*server{s}, nil, false)
			networks, kind, _, _ := s.clients()
			limits[s] = alone.body() + kind + networks
			continue
		}
		for _, l := range slices.Backward(blocksOf(s)) {
			if l.rule.closes() {
				s.left = l.rule.from[0]
			}
		}
	}
	if public := without(open, (*server).isLoopback); len(public) > 0 {
		open = public
	}
	slices.SortStableFunc(open, func(a, b *server) int { return len(limits[a]) - len(limits[b]) })
	for _, s := range open {
		if s.hosts() != open[0].hosts() { // networks of their own
			return
		}
	}
	for _, s := range open {
		if limits[s] == limits[open[0]] {
			s.left = nil
		}
	}
	isLeft := func(s *server) bool { return s.left != nil }
	t.kept = without(t.servers, isLeft)
	left := without(t.servers, func(s *server) bool { return !isLeft(s) })
	if len(t.kept) > 0 && !t.writeAccess(t.out, t.kept, left, true) {
		for _, s := range t.kept {
			s.left = s.d
		}
		t.kept = nil
	}
}

// order returns the locations of a server so that nginx prefers later ones: prefixes by their
// length, then expressions, the first one last, then prefixes that exclude expressions. Nested ones
// and those of one path are last: they may win over any other.
func (s *server) order() []*location {
	list := without(s.locations, func(l *location) bool { return l.area.none })
	rank := func(l *location) int {
		switch {
		case l.up != nil || l.op == "=":
			return 3
		case l.op == "^~":
			return 2
		case strings.HasPrefix(l.op, "~"):
			return 1
		}
		return 0
	}
	slices.Reverse(list)
	slices.SortStableFunc(list, func(a, b *location) int {
		if c := rank(a) - rank(b); c != 0 || rank(a) == 1 {
			return c
		}
		open := func(l *location) int { return map[bool]int{true: 1}[l.isOpen() && !l.rule.restricts()] }
		return cmp.Or(len(a.path)-len(b.path), open(a)-open(b))
	})
	return list
}

// openLocations returns the locations with files in the order of nginx.
func (s *server) openLocations() []*location {
	return without(s.order(), func(l *location) bool { return !l.isOpen() })
}
