package migrate

import (
	"cmp"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// access is the set of networks that may read files.
type access struct {
	allow, deny []netip.Prefix
	closed      bool // all but allow are denied
	unreadable  bool // a rule is for something else than an address
}

// empty reports whether no client is allowed.
func (a access) empty() bool { return a.closed && len(a.allow) == 0 }

// accessOf translates the rules allow and deny: in nginx the first matching rule wins, in the
// gateway deny wins.
func accessOf(rules []*directive) (a access) {
	var before []netip.Prefix // networks of earlier rules
	for _, d := range rules {
		networks, ok := networksOf(d.arg(0))
		if !ok {
			a.unreadable = true
			continue
		}
		rest := subtract(networks, before)
		if d.name == "allow" {
			a.allow = append(a.allow, rest...)
		} else {
			a.deny = append(a.deny, rest...)
		}
		before = append(before, networks...)
		if d.arg(0) == "all" {
			if a.closed = d.name == "deny"; a.closed {
				a.deny = nil // all others are denied anyway
			} else {
				a.allow = nil
			}
			return a
		}
	}
	a.allow = nil // without "deny all", other clients may read files as well
	return a
}

func networksOf(v string) ([]netip.Prefix, bool) {
	if v == "all" {
		return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, true
	}
	if p, err := netip.ParsePrefix(v); err == nil {
		return []netip.Prefix{p.Masked()}, true
	}
	if a, err := netip.ParseAddr(v); err == nil {
		return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}, true
	}
	return nil, false
}

// subtract returns the part of networks that is in none of the others.
func subtract(networks, others []netip.Prefix) []netip.Prefix {
	for _, o := range others {
		var left []netip.Prefix
		for _, n := range networks {
			left = append(left, without(n, o)...)
		}
		networks = left
	}
	return networks
}

func without(n, o netip.Prefix) []netip.Prefix {
	switch {
	case !n.Overlaps(o):
		return []netip.Prefix{n}
	case o.Bits() <= n.Bits():
		return nil
	}
	low := netip.PrefixFrom(n.Addr(), n.Bits()+1)
	bytes := n.Addr().AsSlice()
	bytes[n.Bits()/8] |= 0x80 >> (n.Bits() % 8)
	addr, _ := netip.AddrFromSlice(bytes)
	return append(without(low, o), without(netip.PrefixFrom(addr, n.Bits()+1), o)...)
}

// list returns networks as text; a network of one address is written as the address.
func list(networks []netip.Prefix) string {
	texts := make([]string, len(networks))
	for i, n := range networks {
		if texts[i] = n.String(); n.IsSingleIP() {
			texts[i] = n.Addr().String()
		}
	}
	return strings.Join(texts, ", ")
}

// everybody is the value of deny that closes files to all clients.
const everybody = "0.0.0.0/0, ::/0, unix:"

// translateAccess writes allow, deny and referers, for all files or for those of selectors. Files
// behind a check that the gateway does not have are denied to all clients.
func (t *translator) translateAccess() {
	values, from := t.perCell(true, t.ruleOf)
	for _, s := range t.all {
		t.restrictOthers(s, values, from)
	}
	t.closeToOthers(values, from)
	t.closeCells(values, from)
	t.writeChoices("access", t.universe.spread(values), from,
		"allow", "deny", "referers", "referer_file", "referer_redirect")
}

// restrictOthers sets the rule of files that no translated server serves: the rule of a server that
// stays in nginx, or else the rule of a translated server for files without a location.
func (t *translator) restrictOthers(s *server, values map[cell]string, from map[string][]*directive) {
	chain := s.chain(nil)
	general := len(inForce(chain, "allow", "deny")) > 0 || invalidReferer(chain) != nil
	for _, c := range t.universe.all {
		o := s.cells[c]
		_, served := values[c]
		stays, translated := s.left != nil && o.open(), slices.Contains(t.servers, s) && general
		if served || o.guard != nil || o.idle != nil || !stays && !translated {
			continue
		}
		if !stays {
			o = outcome{}
		}
		if rule := t.ruleOf(s, o); rule.value != "" {
			values[c] = rule.value
			if len(from[rule.value]) == 0 {
				from[rule.value] = rule.from
			}
		}
	}
}

// thisHost are the clients of a server that listens on loopback addresses only.
const thisHost = "127.0.0.0/8, ::1, unix:"

// closeToOthers closes files that nginx serves only on loopback addresses to clients of other
// hosts.
func (t *translator) closeToOthers(values map[cell]string, from map[string][]*directive) {
	public := map[cell]bool{}
	for _, f := range t.openFiles() {
		public[f.c] = public[f.c] || !f.s.isLoopback()
	}
	if !slices.Contains(slices.Collect(maps.Values(public)), true) {
		return
	}
	for _, f := range t.openFiles() {
		if v := values[f.c]; !public[f.c] && part(v, 0) == "" {
			at := f.s.listens[0].d
			t.note(at, "the files of this address stay closed to other hosts", "")
			values[f.c] = parts(thisHost, part(v, 1), part(v, 2), part(v, 3), part(v, 4))
			from[values[f.c]] = union(from[values[f.c]], append(slices.Clone(from[v]), at)...)
		}
	}
}

// closeCells denies the files behind a check to all clients, and adds findings about the check.
func (t *translator) closeCells(values map[cell]string, from map[string][]*directive) {
	closed := parts("", everybody)
	for _, s := range t.all {
		if s.left == nil && !slices.Contains(t.servers, s) {
			continue
		}
		for _, c := range t.universe.all {
			o := s.cells[c]
			check := cmp.Or(o.guard, o.idle)
			v, open := values[c]
			if check == nil || open && v != closed || s.left != nil && isImageFilter(check) {
				continue // see openElsewhere
			}
			values[c] = closed
			if s.left == nil && (o.guard != nil || o.finer != nil || !t.universe.names[c.group]) {
				// sayLeft and otherLocation report the other checks
				t.sayClosed(c, o)
			}
			from[closed] = union(from[closed], check)
		}
	}
}

// ruleOf returns the rules of access to the files of a location.
func (t *translator) ruleOf(s *server, o outcome) (a attribute) {
	chain := s.chain(o.loc)
	var allow, deny, referers, file, redirect string
	if rules := inForce(chain, "allow", "deny"); len(rules) > 0 {
		rule := accessOf(rules)
		own := !slices.ContainsFunc(rule.allow, func(n netip.Prefix) bool { return !n.Addr().IsLoopback() })
		switch {
		case rule.closed && own && s.isLoopback():
			t.note(rules[0], "only programs of this host reach the address of this server", "")
		case rule.closed:
			allow = list(rule.allow)
		default:
			deny = list(rule.deny)
		}
		a.from = append(a.from, rules...)
	}
	if lines := inForce(chain, "valid_referers"); len(lines) > 0 {
		if test := invalidReferer(chain); test == nil {
			t.note(lines[0], "no if asks for $invalid_referer here, so nginx rejects nothing", "")
		} else {
			referers = cmp.Or(t.referers(s, lines), noReferer)
			var response *directive
			file, redirect, response = t.refererResponse(s, test)
			a.from = slices.Concat(a.from, lines, withoutNil(response))
		}
	}
	t.done(a.from...)
	a.value = parts(allow, deny, referers, file, redirect)
	return a
}

// invalidReferer returns the if that rejects a foreign referer.
func invalidReferer(chain [][]*directive) *directive {
	for _, block := range chain {
		for _, d := range named(block, "if") {
			if d.arg(0) == "$invalid_referer" {
				return d
			}
		}
	}
	return nil
}

var hostName = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?$`)

// noReferer is a name that no referer has: if valid_referers has no names, nginx rejects all
// referers.
const noReferer = "_"

// referers translates the lines of valid_referers, which add up.
func (t *translator) referers(s *server, lines []*directive) string {
	var names []string
	add := func(list ...string) { names = union(names, list...) }
	one := func(d *directive, arg string) {
		name, path, hasPath := strings.Cut(arg, "/")
		name, _, _ = strings.Cut(strings.ToLower(name), ":")
		switch {
		case arg == "none", arg == "blocked":
			add(arg)
		case arg == "server_names":
			for _, n := range s.names {
				if hostName.MatchString(n) && n != "_" {
					add(strings.ToLower(n))
				}
			}
		case strings.HasPrefix(arg, "~"):
			if !isExpression(arg[1:]) {
				t.say(d, "the expression "+oneLine(arg, 60)+" cannot be read: its referers are rejected",
					"write one without commas and assertions to referers, or the host names that are meant")
				return
			}
			add(arg)
		case !hostName.MatchString(strings.TrimPrefix(name, ".")) || !isPath(path):
			t.say(d, oneLine(arg, 60)+" is no host name", "add the host names that are meant to referers")
		case hasPath:
			add(name + "/" + path)
		case name[0] == '.':
			add(name[1:], "*"+name)
		default:
			add(name)
		}
	}
	for _, d := range lines {
		for _, arg := range d.args {
			one(d, arg)
		}
	}
	return strings.Join(names, ", ")
}

// isExpression reports whether a text is an expression that referers can have.
func isExpression(text string) bool {
	_, err := regexp.Compile("(?i)" + text)
	return err == nil && text != "" && len(text) <= 512 && isPath(text)
}

// isPath reports whether a text can be a part of a list: it has no comma and no blank.
func isPath(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f || c == ',' })
}

// refererResponse translates the response to a foreign referer: 403, a file of this host, or a
// redirect.
func (t *translator) refererResponse(s *server, test *directive) (file, redirect string, from *directive) {
	t.done(test)
	for _, d := range test.block {
		t.done(d)
		uri := ""
		switch {
		case d.name == "return" && d.arg(0) >= "400" && d.arg(0) <= "599":
			if d.arg(0) != "403" {
				t.note(d, "a foreign referer is 403", "")
			}
			return "", "", nil
		case d.name == "return":
			uri = d.arg(len(d.args) - 1)
		case d.name == "rewrite":
			uri = d.arg(1)
		case d.name == "root" || d.name == "break" || d.name == "access_log" || d.name == "log_not_found":
			continue
		}
		if isTarget(uri) {
			if d.arg(0) == "301" || d.arg(2) == "permanent" {
				t.note(d, "a foreign referer is 302, not 301", "")
			}
			return "", strings.TrimSuffix(uri, "?"), d
		}
		if file := t.fileOf(s, uri, test.block); strings.HasPrefix(uri, "/") && t.Readable(file) {
			return file, "", d
		}
		t.say(d, "a foreign referer is 403 here",
			"set referer_file to a picture on this host, which is sent with 200, or referer_redirect to a URL")
	}
	return "", "", nil
}

// isTarget reports whether a text is a URL without variables that referer_redirect can have.
func isTarget(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		!strings.ContainsFunc(uri, func(c rune) bool { return c <= ' ' || c > '~' || c == '\\' || c == '$' })
}

// fileOf returns the file of this host that nginx sends for a path, or an empty string.
func (t *translator) fileOf(s *server, uri string, inner []*directive) string {
	if !strings.HasPrefix(uri, "/") {
		return ""
	}
	l, _ := find(s.locations, uri)
	chain := s.chain(l)
	if inner != nil {
		chain = append([][]*directive{inner}, chain...)
	}
	d := last(chain, "root", "alias")
	if d == nil || !strings.HasPrefix(d.arg(0), "/") {
		return ""
	}
	if d.name == "alias" && l != nil {
		return strings.TrimSuffix(d.arg(0), "/") + "/" + strings.TrimPrefix(strings.TrimPrefix(uri, l.path), "/")
	}
	return strings.TrimSuffix(d.arg(0), "/") + uri
}

// maxKinds bounds the kinds of files in one finding.
const maxKinds = 3

// sayClosed adds findings about the location of closed files and about its check.
func (t *translator) sayClosed(c cell, o outcome) {
	text := "these files are closed here, since the gateway does not have the check of this location"
	if o.finer != nil {
		text = "all files " + c.describe() + " are closed here, since this check is for a part of them"
		if o.finer.closed++; o.finer.closed > maxKinds {
			text = "further kinds of files are closed as well"
		}
	}
	t.say(o.place(), text, "")
	t.explainGuard(cmp.Or(o.guard, o.idle))
	for _, l := range []*location{o.loc, o.finer} {
		if l != nil && !t.opens(l) {
			t.adviseAll(l.d.block)
			t.doneAll(l.d)
		}
	}
}

// opens reports whether some files of a location are open.
func (t *translator) opens(l *location) bool {
	return slices.ContainsFunc(t.openFiles(), func(f openFile) bool { return f.o.loc == l })
}

// describe returns a kind of files as text for a finding.
func (c cell) describe() string {
	group, path, ext := "of "+c.group, "", ""
	if c.group == otherGroup {
		group = "of other groups"
	}
	if c.path != otherPath {
		path = " in " + c.path
	}
	if c.ext != "" {
		ext = " with the extension " + c.ext
	}
	return group + path + ext
}
