package migrate

import (
	"slices"
	"strings"
)

// server is one server block.
type server struct {
	d         *directive
	http      []*directive // directives of the http block around it
	names     []string
	listens   []listen
	self      *location // the block of the server, with its locations
	decisions []decision
	left      *directive // the directive for which the server stays in nginx; nil = it is translated
}

// location is one location block, or the block of a server.
type location struct {
	s       *server
	d       *directive
	op      string // empty, =, ^~, ~, ~* or @
	path    string
	pattern pattern
	up      *location
	inner   []*location // in the order in which nginx looks at them
	serves  bool        // files of FastDFS
	image   bool        // pictures that it changes
	rule    rule        // also the one that closes files behind a check
	parts   []part
	values  settings // of [access] and [headers]
}

// part is a condition on the path, or a rewrite, that decides about some files.
type part struct {
	d       *directive
	pattern pattern
}

// chain returns the blocks in force in a location, innermost first.
func (l *location) chain() (blocks [][]*directive) {
	s := l.s
	for ; l != s.self; l = l.up {
		blocks = append(blocks, l.d.block)
	}
	return append(blocks, s.d.block, s.http)
}

// open reports whether a location serves files, to some clients at least.
func (l *location) open() bool { return l.serves && !l.image && !l.rule.closes() }

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
		all = append(all, s.self.all()...)
	}
	return all
}

func (l *location) all() []*location {
	all := []*location{l}
	for _, in := range l.inner {
		all = append(all, in.all()...)
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
			s.self = &location{s: s, d: d, path: "/", pattern: patternOf("", "/")}
			s.listens = listensOf(s)
			s.self.serves = first(d.block, "ngx_fastdfs_module") != nil
			s.self.addLocations()
			t.all = append(t.all, s)
		}
	}
	t.servers = without(t.all, func(s *server) bool {
		return !slices.ContainsFunc(blocksOf(s), func(l *location) bool { return l.serves })
	})
	t.grouped = t.Module.GroupInURL
	for _, l := range blocksOf(t.servers...) { // without mod_fastdfs.conf
		t.grouped = t.grouped || t.ModuleFile == "" && l.serves && grouped().MatchString(l.path)
	}
	for _, l := range blocksOf(t.servers...) {
		t.judge(l)
	}
	slices.SortStableFunc(t.servers, func(a, b *server) int { return len(b.defaults()) - len(a.defaults()) })
	t.collectKinds()
	t.choose()
}

// addLocations adds the locations of a block.
func (l *location) addLocations() {
	for _, d := range named(l.d.block, "location") {
		in := &location{s: l.s, d: d, up: l}
		in.op, in.path = locationPattern(d.args)
		in.pattern = patternOf(in.op, in.path)
		in.serves = in.servesFiles()
		filter := first(d.block, "image_filter", "small_light")
		in.image = filter != nil && filter.arg(0) != "off"
		in.addLocations()
		l.inner = append(l.inner, in)
	}
	rank := func(l *location) int { return strings.Count(l.op[:min(len(l.op), 1)], "~") }
	slices.SortStableFunc(l.inner, func(a, b *location) int {
		if rank(a)+rank(b) > 0 {
			return rank(a) - rank(b)
		}
		return len(b.path) - len(a.path)
	})
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
	return l.up != l.s.self && l.up.serves || filePath().MatchString(l.path) && last(l.chain(), "root", "alias") != nil
}

// choose decides which servers are translated: the first one with open files that others reach, and
// those on the same addresses whose rules are the same. Host names do not separate them, since a
// client chooses the name. All others stay in nginx.
func (t *translator) choose() {
	var open []*server
	for _, s := range t.servers {
		s.left = s.d
		for _, l := range slices.Backward(blocksOf(s)) {
			if l.rule.closes() {
				s.left = l.rule.from[0]
			}
		}
		for _, k := range t.kinds {
			s.decisions = append(s.decisions, t.decide(s, k))
		}
		if slices.ContainsFunc(s.decisions, decision.open) {
			s.left = s.d
			open = append(open, s)
		}
	}
	if public := without(open, (*server).isLoopback); len(public) > 0 {
		open = public
	}
	for _, s := range open {
		if s.hosts() != open[0].hosts() {
			return // for networks of their own
		}
	}
	for _, s := range open {
		if s.isLike(open[0]) {
			s.left = nil
			t.kept = append(t.kept, s)
		}
	}
}

// isLike reports whether a server has the balancers and rules of another one.
func (s *server) isLike(o *server) bool {
	networks, kind, _, _ := s.clients()
	otherNetworks, otherKind, _, _ := o.clients()
	for i, d := range s.decisions {
		if e := o.decisions[i]; d.open() && e.open() && d.rule.text() != e.rule.text() {
			return false
		}
	}
	return networks == otherNetworks && kind == otherKind
}
