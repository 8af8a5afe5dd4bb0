package migrate

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// outcome is the handling of one kind of files by nginx.
type outcome struct {
	loc   *location
	via   *directive // serves the files: the module, a proxy_pass, root or alias; nil = not served
	guard *directive // a check that the gateway does not have: the files stay closed
	rest  *directive // rejects all paths without a location
	idle  *directive // a check of files that the server does not serve
	finer *location  // location of the guard or idle check, if that is for a part of the files
}

func (o outcome) open() bool { return o.via != nil && o.guard == nil }

// classify finds the servers that serve files, and those of them that can be translated.
func (t *translator) classify() {
	t.chooseForm()
	for _, s := range t.all {
		files := false
		for _, c := range t.universe.all {
			s.cells[c] = t.outcomeOf(s, t.form.url(c), 0)
			files = files || s.cells[c].via != nil
		}
		if !files {
			s.redirect = redirectsToHTTPS(s)
			continue
		}
		t.leaveNames(s)
		t.closeFiner(s)
		if s.left = cmp.Or(s.left, t.mustStay(s)); s.left == nil {
			t.closeUnserved(s)
			t.servers = append(t.servers, s)
		}
	}
	for _, s := range t.servers {
		s.left = t.openElsewhere(s)
	}
	t.servers = slices.DeleteFunc(t.servers, func(s *server) bool { return s.left != nil })
	slices.SortStableFunc(t.servers, func(a, b *server) int { return isDefault(b) - isDefault(a) })
	for _, s := range t.all {
		if s.left != nil {
			t.sayLeft(s)
		}
	}
}

// leaveNames turns the check of a path that may be a group into an idle one, so that it closes only
// this path. Where the server serves no other groups, nginx has no such files.
func (t *translator) leaveNames(s *server) {
	for _, c := range t.universe.all {
		o := s.cells[c]
		if t.universe.names[c.group] && o.via == nil && !s.cells[cell{otherGroup, c.path, c.ext}].open() {
			s.cells[c] = outcome{loc: o.loc, idle: o.guard}
		}
	}
}

// closeUnserved closes the kinds of files that no location serves, and that are behind a check of
// the server or in a location for some clients only: nginx does not read the store for them.
func (t *translator) closeUnserved(s *server) {
	general := t.guardOf(s, nil, false)
	for c, o := range s.cells {
		if o.via != nil || o.guard != nil || o.idle != nil {
			continue
		}
		if o.idle = general; o.idle == nil && o.loc != nil && o.loc.path != "/" {
			chain := s.chain(o.loc)
			if rules := inForce(chain[:len(chain)-2], "allow", "deny"); len(rules) > 0 && accessOf(rules).closed {
				o.idle = rules[0]
			}
		}
		s.cells[c] = o
	}
}

// chooseForm chooses the form in which the paths of files reach the store: with or without a group,
// and with the prefix in front of it.
func (t *translator) chooseForm() {
	forms := []form{{group: true}, {}}
	if t.ModuleFile != "" && !t.Module.GroupInURL {
		slices.Reverse(forms)
	}
	for _, prefix := range t.prefixes() {
		forms = append(forms, form{prefix, true}, form{prefix, false})
	}
	best := 0
	for _, f := range forms {
		n, served := 0, false
		for _, s := range t.all {
			for _, c := range t.universe.all {
				if c.ext != "" || t.universe.names[c.group] {
					continue
				}
				o := t.outcomeOf(s, f.url(c), 0)
				if served = served || o.via != nil; o.via != nil || o.guard != nil {
					n++
				}
				if o.via != nil {
					s.elsewhere = cmp.Or(s.elsewhere, f.prefix, "/")
				}
			}
		}
		if served && (best == 0 || f.prefix == "" && t.form.prefix == "" && n > best) {
			best, t.form = n, f
		}
	}
	if best == 0 {
		t.form = forms[0]
	}
}

var prefixPart = regexp.MustCompile(`^\^?(/[A-Za-z0-9_\-/]*?)/(?:[(\[]?group|[A-Za-z0-9]{1,16}/M\d|M0)`)

// prefixes returns the prefixes that patterns have in front of the group, such as /files.
func (t *translator) prefixes() (all []string) {
	for _, s := range t.all {
		for _, l := range s.every() {
			m := prefixPart.FindStringSubmatch(l.path)
			if m == nil && (l.op == "" || l.op == "^~") && t.stripsPrefix(l) {
				m = []string{"", strings.TrimSuffix(l.path, "/")}
			}
			if m != nil && m[1] != "" && len(all) < 16 && !slices.Contains(all, m[1]) {
				all = append(all, m[1])
			}
		}
	}
	return all
}

// stripsPrefix reports whether a location passes requests on without its own prefix.
func (t *translator) stripsPrefix(l *location) bool {
	for _, d := range named(l.d.block, "proxy_pass") {
		if _, path, ok := strings.Cut(strings.TrimPrefix(d.arg(0), "http://"), "/"); ok && path == "" {
			return l.path != "/"
		}
	}
	module := first(l.d.block, "ngx_fastdfs_module") != nil && first(l.d.block, "rewrite") != nil
	return stripsByRewrite(l) || module && l.path != "/"
}

var (
	fileWords   = regexp.MustCompile(`(?i)group[\d\[(.*+\\]|M0|M\[|M\\d|/M\d\d`)
	maybeFiles  = regexp.MustCompile(`(?i)group`)
	sourceWords = regexp.MustCompile(`(?i)fdfs|fastdfs|group\d`)
	maybeSource = regexp.MustCompile(`(?i)storage|group`)
)

// serves returns the directive of a location that serves files of FastDFS, or nil.
func (t *translator) serves(s *server, l *location) *directive {
	for _, d := range slices.Backward(l.d.block) {
		switch d.name {
		case "ngx_fastdfs_module":
			return d
		case "proxy_pass":
			if t.passesFiles(l, d) || t.passesToModule(s, d) {
				return d
			}
			return nil
		case "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass", "empty_gif", "stub_status":
			return nil
		}
	}
	for _, d := range named(l.d.block, "if") {
		if pass := named(d.block, "proxy_pass", "ngx_fastdfs_module"); len(pass) > 0 && t.aboutFiles(l) {
			return pass[0]
		}
	}
	for _, d := range named(l.d.block, "try_files") {
		if next := s.byName(d.arg(len(d.args) - 1)); next != nil && next != l {
			if via := t.serves(s, next); via != nil {
				t.done(d)
				return via
			}
		}
	}
	if t.aboutFiles(l) || maybeFiles.MatchString(l.path) || l.up != nil && t.aboutFiles(l.up) || l.op == "@" {
		return last(append([][]*directive{l.d.block}, s.chain(l)...), "alias", "root")
	}
	return nil
}

// passesFiles reports whether a proxy_pass goes to storages, judged by the pattern of the location,
// by the target, or, where both are ambiguous, by the port of a storage.
func (t *translator) passesFiles(l *location, pass *directive) bool {
	if t.aboutFiles(l) || sourceWords.MatchString(pass.arg(0)) {
		return true
	}
	return (maybeFiles.MatchString(l.path) || maybeSource.MatchString(pass.arg(0)) || stripsByRewrite(l)) &&
		slices.ContainsFunc(t.targets(pass), func(a string) bool { return strings.HasSuffix(a, storagePort) })
}

// targets returns the addresses of a proxy_pass.
func (t *translator) targets(pass *directive) []string {
	addresses := []string{target(pass)}
	if up := t.upstreamOf(pass); up != nil {
		for _, d := range named(up.block, "server") {
			addresses = append(addresses, d.arg(0))
		}
	}
	return addresses
}

// ownServers returns the servers of this nginx that a proxy_pass leads to.
func (t *translator) ownServers(pass *directive) (found []*server) {
	for _, address := range t.targets(pass) {
		to := listen{address: listenAddress(address)}
		for _, s := range t.serversAt(to.address) {
			same := func(l listen) bool { return l.address == to.address }
			if to.isLoopback() || slices.ContainsFunc(s.listens, same) {
				found = append(found, s)
			}
		}
	}
	return found
}

// stripsByRewrite reports whether a location removes its prefix from paths by a rewrite.
func stripsByRewrite(l *location) bool {
	d := first(l.d.block, "rewrite")
	return d != nil && l.path != "/" && d.arg(1) == "/$1" && d.arg(2) == "break" && strings.Contains(d.arg(0), l.path)
}

// storagePort is the port of the web server of a storage, by default.
const storagePort = ":8888"

// passesToModule reports whether a proxy_pass leads to another server of this nginx, which serves
// files to all clients.
func (t *translator) passesToModule(from *server, pass *directive) bool {
	return slices.ContainsFunc(t.serversAt(target(pass)), func(s *server) bool {
		open, checked := false, false
		for _, l := range s.every() {
			if first(l.d.block, "ngx_fastdfs_module") != nil {
				open = true
				checked = checked || t.guardOf(s, l, false) != nil || inForce(s.chain(l), "allow", "deny") != nil
			}
		}
		return s != from && open && !checked
	})
}

// aboutFiles reports whether the pattern of a location looks like one for file ids.
func (t *translator) aboutFiles(l *location) bool {
	if fileWords.MatchString(l.path) {
		return true
	}
	return slices.ContainsFunc(strings.Split(l.path, "/"), func(part string) bool {
		return part != "" && slices.Contains(t.Module.Groups, part)
	})
}

// redirectsToHTTPS returns the directive by which a server sends all clients to https, or nil.
func redirectsToHTTPS(s *server) *directive {
	if i := slices.IndexFunc(s.d.block, isHTTPSRedirect); i >= 0 {
		return s.d.block[i]
	}
	for _, l := range s.locations {
		if i := slices.IndexFunc(l.d.block, isHTTPSRedirect); i >= 0 && l.op == "" && l.path == "/" {
			return l.d.block[i]
		}
	}
	return nil
}

// isHTTPSRedirect reports whether a directive is a return or rewrite of all paths to https.
func isHTTPSRedirect(d *directive) bool {
	switch d.name {
	case "return":
		return strings.HasPrefix(d.arg(0), "30") && strings.HasPrefix(d.arg(1), "https://")
	case "rewrite":
		re, err := regexp.Compile(d.arg(0))
		all := err == nil && re.MatchString("/") && re.MatchString("/a.b") && re.MatchString("/group1/M00/00/00/a.jpg")
		return all && strings.HasPrefix(d.arg(1), "https://")
	}
	return false
}

// mustStay returns the check for which a server stays in nginx: it has no files without one. The
// result is nil if some files are open.
func (t *translator) mustStay(s *server) (guard *directive) {
	for _, c := range t.universe.all {
		o := s.cells[c]
		if o.open() {
			return nil
		}
		if guard == nil {
			guard = o.guard
		}
	}
	return guard
}

// openElsewhere returns the check of files that another server serves without one, or nil: one
// gateway cannot do both.
func (t *translator) openElsewhere(s *server) *directive {
	for _, c := range t.universe.all {
		guard := s.cells[c].guard
		if guard != nil && slices.ContainsFunc(t.servers, func(o *server) bool { return o != s && o.cells[c].open() }) {
			return guard
		}
	}
	return nil
}

// sayLeft adds findings about a server that stays in nginx.
func (t *translator) sayLeft(s *server) {
	if s.unclear != nil {
		t.say(s.unclear, "the files of this expression cannot be told from those behind a check", "")
	}
	t.say(s.d, s.title()+" is not translated: some of its files are behind a check that the gateway does not have",
		"keep nginx for it on an address of its own")
	t.explainGuard(s.left)
	for _, c := range t.universe.all {
		if o := s.cells[c]; o.guard != nil {
			t.say(o.place(), "it is not opened without its check", "")
			t.explainGuard(o.guard)
		}
	}
	t.adviseAll(s.d.block)
	t.doneAll(s.d)
}
