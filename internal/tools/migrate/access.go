package migrate

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// thisHost are the clients of a server that listens on loopback addresses only.
const thisHost = "127.0.0.0/8, ::1, unix:"

// judge finds the check, the rejection and the rules of a location or server.
func (t *translator) judge(s *server, l *location) {
	chain := s.chain(l)
	if l.d == s.d {
		chain = s.chain(nil)
	}
	if first(chain[0], "stub_status", "proxy_cache_purge", "empty_gif") != nil {
		return // no files
	}
	l.check = t.checkIn(s, l, chain)
	if reply := first(chain[0], "return"); reply != nil && l.check == nil {
		if reply.arg(0) >= "400" && reply.arg(0) <= "599" {
			l.reject = reply
		} else if l.d != s.d && l.path != "/" && filePath.MatchString(l.path) &&
			!strings.Contains(strings.Join(reply.args, " "), "$request_uri") {
			l.check = reply // a page of its own
		}
	}
	if l.reject != nil && l.path != "/" && l.d != s.d {
		l.check, l.reject = l.reject, nil
	}
	if l.check == nil {
		l.rule = t.ruleOf(s, chain)
		rules := inForce(chain, "allow", "deny")
		if a := accessOf(rules); a.unreadable || a.closed && len(a.allow) == 0 ||
			len(rules) > 0 && t.clientIsLost(chain) {
			l.check = rules[0]
		}
		public := slices.ContainsFunc(t.servers, func(s *server) bool { return !s.isLoopback() })
		if s.isLoopback() && public && part(l.rule.value, 0) == "" {
			l.rule.value = parts(append([]string{thisHost}, strings.Split(l.rule.value, between)[1:]...)...)
			l.rule.from = append(l.rule.from, s.listens[0].d)
		}
	}
}

// clientIsLost reports whether the gateway sees other addresses of clients than nginx: those of
// balancers that it does not know, or those in fields that it does not read.
func (t *translator) clientIsLost(chain [][]*directive) bool {
	kind, first := "x-real-ip", t.servers[0].chain(nil)
	if d := last(chain, "real_ip_header"); d != nil {
		kind = strings.ToLower(d.arg(0))
	}
	proxies := inForce(chain, "set_real_ip_from")
	for _, s := range t.servers {
		if len(proxies) > 0 && kind != "proxy_protocol" &&
			slices.ContainsFunc(s.listens, func(l listen) bool { return l.d.has("proxy_protocol") }) {
			return true
		}
		if !slices.EqualFunc(inForce(s.chain(nil), "set_real_ip_from"), proxies,
			func(a, b *directive) bool { return a.String() == b.String() }) {
			return true
		}
	}
	known := kind == "x-real-ip" || kind == "x-forwarded-for" || kind == "proxy_protocol"
	header := last(first, "real_ip_header")
	return len(proxies) > 0 && (!known || header != nil && strings.ToLower(header.arg(0)) != kind) ||
		slices.ContainsFunc(proxies, func(d *directive) bool {
			_, ok := networksOf(d.arg(0))
			return !ok || d.arg(0) == "all" || strings.HasSuffix(d.arg(0), "/0")
		})
}

// checkIn returns a check of a location that the gateway does not have, or nil.
func (t *translator) checkIn(s *server, l *location, chain [][]*directive) *directive {
	for _, d := range chain[0] {
		_, check := checks[d.name]
		switch {
		case d.name == "limit_except" && !d.has("GET") && len(d.block) > 0:
			return d
		case ownBlock[d.name] && check && d.arg(0) != "off":
			return d
		case slices.Contains(applications, d.name) && l.path != "/":
			return d
		case d.name == "proxy_pass" && t.decides(s, l, d):
			return d
		}
	}
	for name, off := range checks {
		if d := last(chain, name); d != nil && !ownBlock[name] && (off == "" || d.arg(0) != off) &&
			d.arg(0) != "optional_no_ca" {
			return d
		}
	}
	for i, block := range chain {
		for _, d := range block {
			switch {
			case d.name == "if" && slices.ContainsFunc(d.block, diverts) && !isFree(d):
				return d
			case d.name == "include" && slices.Contains(t.tree.missing, d) &&
				(hasWord(d.arg(0), includeWords) || i < len(chain)-1 && !hasWord(d.arg(0), harmlessWords)):
				return d
			case t.looksLikeCheck(d):
				return d
			case i < len(chain)-1 && t.leads(s, d) && (i < len(chain)-2 || d.name != "rewrite"):
				return d
			}
		}
	}
	return nil
}

// looksLikeCheck reports whether an unknown directive has the name of a check, or almost.
func (t *translator) looksLikeCheck(d *directive) bool {
	if isKnown(d.name) || settings[d.name] || d.arg(0) == "off" || d.name == "include" {
		return false
	}
	near, ok := t.near(d.name)
	_, check := checks[near]
	return ok && (check || near == "allow" || near == "deny" || near == "valid_referers") || hasWord(d.name, checkWords)
}

// decides reports whether a proxy_pass leads to a program that may decide about files: one that
// sends X-Accel-Redirect, another server of this nginx with a check, or a variable.
func (t *translator) decides(s *server, l *location, pass *directive) bool {
	if !l.serves {
		return l.path != "/"
	}
	host, _, _ := strings.Cut(pass.arg(0)[strings.Index(pass.arg(0), "://")+3:], "/")
	host = strings.TrimSuffix(strings.TrimSuffix(host, "$request_uri"), "$uri")
	if strings.Contains(host, "$") || slices.ContainsFunc(s.every(), func(o *location) bool {
		return first(o.d.block, "internal") != nil && first(o.d.block, "root", "alias", "ngx_fastdfs_module") != nil &&
			!isPage(o)
	}) {
		return true
	}
	hosts := []string{target(pass)}
	if up := t.upstreamOf(pass); up != nil {
		hosts = nil
		for _, d := range named(up.block, "server") {
			hosts = append(hosts, d.arg(0))
		}
	}
	return slices.ContainsFunc(hosts, func(h string) bool { return t.checkedBy(s, listen{address: listenAddress(h)}) })
}

// checkedBy reports whether an address is one of this nginx with a check, or one of a program of
// this host. A server that listens on all addresses may have any address and name.
func (t *translator) checkedBy(s *server, to listen) bool {
	known := false
	for _, o := range t.all {
		for _, l := range o.listens {
			name, _, _ := strings.Cut(to.address, ":")
			own := l.address == to.address || to.isLoopback() || slices.Contains(o.names, name)
			if l.port() != to.port() || !own && (o == s || l.host() != "") {
				continue
			}
			known = true
			files := slices.DeleteFunc(slices.Clone(o.d.block), func(d *directive) bool { return d.name == "location" })
			for _, l := range o.locations {
				if own || l.serves || l.path == "/" {
					files = append(files, l.d)
				}
			}
			if hasChecks(files) {
				return true
			}
		}
	}
	return to.isLoopback() && !known
}

// isPage reports whether a location is for pages of errors.
func isPage(l *location) bool {
	return strings.Contains(l.path, "html") || strings.Contains(l.path, "50x")
}

// leads reports whether a directive passes requests on to other locations, while one of the server
// has a check.
func (t *translator) leads(s *server, d *directive) bool {
	to := d.arg(len(d.args) - 1)
	switch d.name {
	case "rewrite":
		if d.arg(2) == "break" || isHTTPS(d) || isTarget(d.arg(1)) {
			return false
		}
	case "try_files":
		if strings.HasPrefix(to, "=") {
			return false
		}
	case "error_page":
		if !strings.HasPrefix(to, "@") && !strings.Contains(to, "$") {
			return false
		}
	default:
		return false
	}
	return slices.ContainsFunc(s.every(), func(l *location) bool { return !isPage(l) && hasChecks(l.d.block) })
}

// hasChecks reports whether a block or one in it decides about requests.
func hasChecks(block []*directive) bool {
	return slices.ContainsFunc(block, func(d *directive) bool {
		_, check := checks[d.name]
		return check || d.name == "allow" || d.name == "deny" || d.name == "valid_referers" ||
			!isKnown(d.name) && hasWord(d.name, checkWords) || d.name == "if" && slices.ContainsFunc(d.block,
			diverts) ||
			hasChecks(d.block)
	})
}

// isFree reports whether the condition of an if shows that it is no check of rights: a test that
// rejects browsers by their name, ranges, files that are not there, or methods other than GET, or
// the test of valid_referers. A condition on the path is compared with the kinds of files.
func isFree(d *directive) bool {
	_, onPath := conditionPattern(d)
	returns := !slices.ContainsFunc(d.block, func(d *directive) bool { return diverts(d) && d.name != "return" })
	switch variable := d.arg(0); variable {
	case "$invalid_referer":
		return len(d.args) == 1 || d.arg(1) == "=" && d.arg(2) == "1"
	case "$request_method":
		return returns && !holds(d.args, "GET")
	case "$http_user_agent", "$http_range":
		return returns && !strings.HasPrefix(d.arg(1), "!")
	case "!-f", "!-e", "!-d", "-f", "-e", "-d":
		path := strings.NewReplacer("$request_filename", "", "$document_root", "", "$uri", "").Replace(d.arg(1))
		return returns && !strings.Contains(path, "$")
	}
	return onPath
}

// conditionPattern returns the pattern of a condition on the path, or of a rewrite.
func conditionPattern(d *directive) (p pattern, ok bool) {
	if d.name == "rewrite" {
		return newPattern("~", d.arg(0)), true
	}
	onPath := slices.Contains([]string{"$uri", "$document_uri", "$request_uri", "$request_filename"}, d.arg(0))
	if !onPath || !strings.HasPrefix(d.arg(1), "~") {
		return p, false
	}
	text := d.arg(2)
	if d.arg(0) != "$uri" && d.arg(0) != "$document_uri" {
		text = strings.TrimSuffix(strings.TrimPrefix(text, "^"), "$") // a query or a folder is around the path
	}
	return newPattern(d.arg(1), text), true
}

// conditionOn returns the condition on the path, or the rewrite of the server, that may hold for
// files of a kind.
func (t *translator) conditionOn(s *server, l *location, c cell) *directive {
	blocks := [][]*directive{s.d.block}
	for ; l != nil && l.d != s.d; l = l.up {
		blocks = append(blocks, l.d.block)
	}
	for _, block := range blocks {
		for _, d := range named(block, "if", "rewrite") {
			if d.name == "if" && !slices.ContainsFunc(d.block, diverts) || d.name == "rewrite" && !t.leads(s, d) {
				continue
			}
			if p, ok := conditionPattern(d); ok {
				if can, _ := p.match(t.universe.shapes[c]); can {
					return d
				}
			}
		}
	}
	return nil
}

// holds reports whether the condition of an if is true for a value of its variable.
func holds(condition []string, value string) bool {
	condition = append(slices.Clone(condition), "", "")
	op, text := condition[1], condition[2]
	if op == "" {
		return value != ""
	}
	matched := value == text
	if strings.Contains(op, "~") {
		if strings.HasSuffix(op, "*") {
			text = "(?i)" + text
		}
		re, err := regexp.Compile(text)
		matched = err == nil && re.MatchString(value)
	}
	return matched != strings.HasPrefix(op, "!")
}

// diverts reports whether a directive of an if responds with something else than the file.
func diverts(d *directive) bool {
	switch d.name {
	case "return":
		return !isHTTPS(d)
	case "rewrite":
		return !isHTTPS(d) && (d.arg(2) != "break" || !strings.Contains(d.arg(1), "$"))
	case "deny", "auth_basic", "auth_request", "proxy_pass", "ngx_fastdfs_module":
		return true
	}
	_, check := checks[d.name]
	return check || slices.Contains(applications, d.name)
}

// everybody is the value of deny that closes files to all clients.
const everybody = "0.0.0.0/0, ::/0, unix:"

// translateAccess writes allow, deny and referers. Files behind a check that the gateway does not
// have are denied to all clients.
func (t *translator) translateAccess() {
	values, from := map[cell]string{}, map[string][]*directive{}
	closed := parts("", everybody)
	set := func(c cell, value string, list ...*directive) {
		values[c] = value
		from[value] = union(from[value], list...)
		if value != closed {
			t.done(list...)
		}
	}
	for _, c := range t.universe.all {
		var check *directive
		var rejects *directive
		for _, s := range t.servers {
			p := s.found[c]
			if s.left == nil && p.open() {
				set(c, p.loc.rule.value, p.loc.rule.from...)
				check = nil
				break
			}
			check = cmp.Or(check, p.check)
			if rule := p.loc.rule; s.left == nil && !p.loc.serves && p.check == nil && rule.value != "" &&
				rule.value != thisHost && values[c] == "" {
				set(c, rule.value, rule.from...)
			}
			if s.left == nil {
				rejects = cmp.Or(rejects, p.reject)
			} else if check == nil && p.open() && p.loc.rule.value != "" {
				check = p.loc.rule.from[0]
			}
		}
		if _, ruled := values[c]; !ruled && cmp.Or(check, rejects) != nil {
			set(c, closed, withoutNil(cmp.Or(check, rejects))...)
		}
	}
	choices := t.universe.spread(values)
	t.writeChoices("access", choices, from, "allow", "deny", "referers", "referer_file", "referer_redirect")
	for _, d := range from[closed] {
		t.sayClosed(d, choices, closed)
	}
}

// sayClosed adds the finding about a check.
func (t *translator) sayClosed(d *directive, choices []choice, closed string) {
	where := ""
	for _, c := range choices {
		if c.value == closed {
			where += c.name(" [access") + "]"
		}
	}
	text := "the gateway does not have this check: its files are denied," + where
	advice := inFront
	switch {
	case d.name == "return" && d.arg(0) == "403":
		t.done(d)
		return
	case d.name == "return":
		text, advice = "nginx does not serve these files; they are denied, with 403,"+where, ""
	case strings.HasPrefix(d.name, "secure_link"):
		advice = "use the tokens of FastDFS (http.anti_steal.check_token), or keep nginx in front"
	case d.name == "include":
		text, advice = "the file is not there, and may hold a check: these files are denied,"+where,
			"add the file and translate again"
	case !isKnown(d.name):
		text = "this looks like a check" + t.hint(d.name) + ": its files are denied," + where
	}
	t.say(d, text, advice)
}

// ruleOf returns the rules of access in force: allow, deny, and those for the referer.
func (t *translator) ruleOf(s *server, chain [][]*directive) (a attribute) {
	var allow, deny, referers, redirect string
	if rules := inForce(chain, "allow", "deny"); len(rules) > 0 {
		if r := accessOf(rules); r.closed {
			allow = list(r.allow)
		} else {
			deny = list(r.deny)
		}
		a.from = append(a.from, rules...)
	}
	var test *directive
	for _, block := range chain {
		for _, d := range named(block, "if") {
			if d.arg(0) == "$invalid_referer" && test == nil {
				test = d
			}
		}
	}
	if lines := inForce(chain, "valid_referers"); len(lines) > 0 && test != nil {
		referers = cmp.Or(t.referers(s, lines), noReferer)
		redirect = t.refererResponse(test)
		a.from = slices.Concat(a.from, lines, []*directive{test})
	}
	a.value = parts(allow, deny, referers, "", redirect)
	return a
}

var hostName = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?$`)

// noReferer is a name that no referer has: if valid_referers has no names, nginx rejects all
// referers.
const noReferer = "_"

// referers translates the lines of valid_referers, which add up.
func (t *translator) referers(s *server, lines []*directive) string {
	var names []string
	one := func(arg string) bool {
		name, path, hasPath := strings.Cut(arg, "/")
		name, _, _ = strings.Cut(strings.ToLower(name), ":")
		_, err := regexp.Compile("(?i)" + strings.TrimPrefix(arg, "~"))
		switch {
		case arg == "none" || arg == "blocked":
			names = union(names, arg)
		case arg == "server_names":
			for _, n := range s.names {
				if hostName.MatchString(n) && n != "_" {
					names = union(names, strings.ToLower(n))
				}
			}
		case strings.HasPrefix(arg, "~") && err == nil && len(arg) > 1 && len(arg) < 512 && isPath(arg):
			names = union(names, arg)
		case arg[0] == '~' || !hostName.MatchString(strings.TrimPrefix(name, ".")) || !isPath(path):
			return false
		case hasPath:
			names = union(names, name+"/"+path)
		case name[0] == '.':
			names = union(names, name[1:], "*"+name)
		default:
			names = union(names, name)
		}
		return true
	}
	for _, d := range lines {
		for _, arg := range d.args {
			if arg != "" && !one(arg) {
				t.say(d, oneLine(arg, 60)+" cannot be read: its referers are rejected",
					"write an expression without commas and assertions, or host names, to referers")
			}
		}
	}
	return strings.Join(names, ", ")
}

// isPath reports whether a text can be a part of a list: it has no comma and no blank.
func isPath(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f || c == ',' })
}

// refererResponse returns the URL to which a foreign referer is sent; empty = it is 403.
func (t *translator) refererResponse(test *directive) string {
	for _, d := range test.block {
		uri := ""
		switch {
		case d.name == "rewrite":
			uri = d.arg(1)
		case d.name == "return" && d.arg(0) < "400":
			uri = d.arg(len(d.args) - 1)
		case d.name == "return" && d.arg(0) != "403":
			t.note(d, "a foreign referer is 403", "")
		}
		switch {
		case isTarget(uri):
			if d.arg(0) == "301" || d.arg(2) == "permanent" {
				t.note(d, "a foreign referer is 302, not 301", "")
			}
			t.done(d)
			return strings.TrimSuffix(uri, "?")
		case uri != "":
			t.say(d, "a foreign referer is 403 here",
				"set referer_file to a picture on this host, which is sent with 200, or referer_redirect to a URL")
		}
		t.done(d)
	}
	return ""
}

// isTarget reports whether a text is a URL without variables that referer_redirect can have.
func isTarget(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		!strings.ContainsFunc(uri, func(c rune) bool { return c <= ' ' || c > '~' || c == '\\' || c == '$' })
}
