package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// rule is a check of clients that the gateway has. The zero value allows all.
type rule struct {
	allow, deny, referers, redirect string
	from                            []*directive
}

func (r rule) restricts() bool { return r.allow+r.deny+r.referers != "" }

func (r rule) text() string {
	return fmt.Sprint(r.allow, "|", r.deny, "|", r.referers, "|", r.redirect)
}

// everybody is the value of deny that closes files to all clients.
const everybody = "0.0.0.0/0, ::/0, unix:"

// writeAccess writes the rules of servers in the order of nginx, and closes the files behind checks
// that the gateway does not have, the files that other servers serve, and with rejects those that
// nginx rejects. Later keys win, so a location reopens files only if it surely matches them, and
// nginx surely prefers it. The result reports whether any files stay open.
func (t *translator) writeAccess(o *document, kept, left []*server, rejects bool) bool {
	self, limited := kept[0].self, []selector{}
	put := func(files selector, r rule) {
		t.putRule(o, files, r)
		if r.restricts() {
			limited = append(limited, files)
		}
	}
	closed := func(files selector, d *directive) { put(files, rule{deny: everybody, from: []*directive{d}}) }
	if t.putRule(o, selector{}, self.rule); self.check != nil {
		closed(selector{}, self.check)
	}
	for _, l := range blocksOf(left...) {
		if !l.area.none && (l.serves || l != l.s.self && (l.check != nil || l.rule.restricts() ||
			l.reject != nil && rejects && !l.isRest())) {
			closed(l.area.outer, cmp.Or(l.check, l.d))
		}
	}
	reopened := !slices.ContainsFunc(blocksOf(kept...), func(l *location) bool { return l.open() && !l.area.opens })
	for _, s := range kept {
		for _, l := range s.order() {
			switch {
			case l.check != nil:
				closed(l.area.outer, l.check)
			case l.reject != nil:
				isPage := l.path != "/" && l.reject.name == "return"
				if rejects && (!l.isRest() || s == kept[0] && reopened && !isPage) {
					closed(l.area.outer, l.reject)
				}
			case !l.rule.restricts():
				if l.open() && l.area.opens {
					put(l.area.files, rule{})
				}
			case l.up != nil && l.rule.text() == l.up.rule.text(): // nginx prefers it to expressions that open files
				if !o.has(l.area.outer, "allow", l.rule.allow) || !o.has(l.area.outer, "deny", l.rule.deny) ||
					!o.has(l.area.outer, "referers", l.rule.referers) {
					closed(l.area.outer, l.rule.from[0])
				}
			case l.area.exact, !slices.ContainsFunc(limited, l.area.outer.meets) &&
				(!self.rule.restricts() || self.rule.text() == l.rule.text()):
				put(l.area.outer, l.rule)
			default:
				closed(l.area.outer, l.rule.from[0])
				if l.area.opens {
					put(l.area.files, l.rule)
				}
			}
		}
	}
	for _, l := range blocksOf(slices.Concat(kept, left)...) {
		for _, p := range l.parts {
			closed(p.outer, p.d)
		}
	}
	return slices.ContainsFunc(blocksOf(kept...), func(l *location) bool { return l.open() && l.staysOpen(o) })
}

// staysOpen reports whether some files of a location are not denied to all clients.
func (l *location) staysOpen(o *document) bool {
	files := l.area.outer
	if l.area.plain {
		files = l.area.files
	}
	return !l.area.none && o.valueFor("access", files, "deny") != everybody
}

// putRule writes the keys of a rule.
func (t *translator) putRule(o *document, files selector, r rule) {
	if o == t.out && r.deny == everybody {
		t.closed[r.from[0]] = append(t.closed[r.from[0]], files)
	} else if o == t.out {
		t.done(r.from...)
	}
	o.put("access", files, "allow", r.allow, r.from...)
	o.put("access", files, "deny", r.deny, r.from...)
	o.put("access", files, "referers", r.referers, r.from...)
	o.put("access", files, "referer_redirect", r.redirect, r.from...)
}

// isRest reports whether a location is for all other paths, or for one that is no group.
func (l *location) isRest() bool {
	if l.path == "/" {
		return l.op == "" // ^~ excludes expressions
	}
	return !l.area.plain && l.area.outer.all() && l.up == nil && !strings.HasPrefix(l.op, "~")
}

// judge finds the check, the rejection and the rules of a location or server.
func (t *translator) judge(l *location) {
	block := l.d.block
	if first(block, noFiles...) != nil {
		l.area.none = true
	}
	if l.area.none {
		return
	}
	if l.check = t.checkIn(l); l.check != nil {
		return
	}
	if reply := first(block, "return"); reply != nil && !isHTTPS(reply) {
		l.reject = reply
	} else if !l.serves && l.path != "/" {
		l.reject = first(block, append(applications, "proxy_pass")...)
	}
	l.rule, l.check = t.ruleOf(l)
}

// checkIn returns a check of a location that the gateway does not have, or nil. A condition on the
// path, or a rewrite of the whole server, is one for a part of its files.
func (t *translator) checkIn(l *location) (check *directive) {
	seen := map[string]bool{} // set in an inner block
	for i, block := range l.chain() {
		var names []string
		for _, d := range block {
			if d.name == "location" || d.name == "server" {
				continue
			}
			outer, http, row := i > 0, i == len(l.chain())-1, rowOf(d.name)
			switch {
			case row.kind == "check":
				if !seen[d.name] && row.applies(d) {
					check = cmp.Or(check, d)
				}
				names = append(names, d.name)
			case d.name == "limit_except" && !d.has("GET") && len(d.block) > 0,
				d.name == "proxy_pass" && !outer && l.serves && t.decides(l, d),
				d.name == "include" && t.hides(d, http),
				t.looksLikeCheck(d):
				check = cmp.Or(check, d)
			case d.name == "if" && slices.ContainsFunc(d.block, diverts) && !isFree(d):
				if op, text := pathCondition(d); op == "" {
					check = cmp.Or(check, d)
				} else if a := areaOf(op, text, t.names); !outer && !a.none {
					l.parts = append(l.parts, part{d, a.outer})
				}
			case http || !t.leads(l.s, d):
			case d.name == "rewrite" && l == l.s.self:
				l.parts = append(l.parts, part{d, areaOf("~", d.arg(0), t.names).outer})
			case d.name != "rewrite" || i < len(l.chain())-2:
				check = cmp.Or(check, d)
			}
		}
		for _, name := range names {
			seen[name] = true
		}
	}
	return check
}

// hides reports whether an include of a missing file may hold a check.
func (t *translator) hides(d *directive, http bool) bool {
	return slices.Contains(t.tree.missing, d) &&
		(hasWord(d.arg(0), includeWords) || !http && !hasWord(d.arg(0), harmlessWords))
}

// looksLikeCheck reports whether an unknown directive has the name of a check, or almost.
func (t *translator) looksLikeCheck(d *directive) bool {
	if isKnown(d.name) || d.arg(0) == "off" || d.name == "include" || d.name == "" {
		return false
	}
	near, ok := t.near(d.name)
	return ok && (isCheck(near) || near == "allow" || near == "deny" || near == "valid_referers") ||
		hasWord(d.name, checkWords)
}

// decides reports whether a proxy_pass leads to a program that may decide about files: one of this
// host, another server of this nginx with a check, one that sends X-Accel-Redirect, or a variable.
func (t *translator) decides(l *location, pass *directive) bool {
	_, host, _ := strings.Cut(pass.arg(0), "://")
	host, _, _ = strings.Cut(host, "/")
	hosts := []string{target(pass)}
	if up := t.upstreamOf(pass); up != nil {
		hosts = nil
		for _, d := range named(up.block, "server") {
			hosts = append(hosts, d.arg(0))
		}
	}
	return strings.Contains(strings.TrimSuffix(strings.TrimSuffix(host, "$request_uri"), "$uri"), "$") ||
		slices.ContainsFunc(l.s.locations, func(o *location) bool {
			return first(o.d.block, "internal") != nil && !o.isPage() &&
				first(o.d.block, "root", "alias", "ngx_fastdfs_module") != nil
		}) || slices.ContainsFunc(hosts, func(host string) bool {
		to := listen{address: listenAddress(host)}
		same := without(t.all, func(o *server) bool {
			return o == l.s && !to.isLoopback() ||
				!slices.ContainsFunc(o.listens, func(l listen) bool { return l.port() == to.port() })
		})
		return to.isLoopback() && len(same) == 0 ||
			slices.ContainsFunc(same, func(o *server) bool { return hasChecks(o.d.block) })
	})
}

var page = lazy(`^[^*+]*\.html\$?$`)

// isPage reports whether a location is for a page of errors.
func (l *location) isPage() bool { return page().MatchString(l.path) }

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
	return slices.ContainsFunc(s.locations, func(l *location) bool {
		return !l.isPage() && hasChecks(l.d.block)
	})
}

// hasChecks reports whether a block or one in it decides about requests.
func hasChecks(block []*directive) bool {
	return slices.ContainsFunc(block, func(d *directive) bool {
		return isCheck(d.name) || d.name == "allow" || d.name == "deny" || d.name == "valid_referers" ||
			!isKnown(d.name) && hasWord(d.name, checkWords) ||
			d.name == "if" && slices.ContainsFunc(d.block, diverts) || hasChecks(d.block)
	})
}

// otherMethods matches conditions on the method that are false for GET.
var otherMethods = lazy(`^(!= GET|!~\*? \^?\(?(\w+\|)*GET(\|\w+)*\)?\$?|` +
	`(=|~\*?) \^?\(?((HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT)\|?)+\)?\$?)$`)

// isFree reports whether the condition of an if shows that it is no check of rights: a test that
// rejects browsers by their name, ranges, files that are not there, or methods other than GET, or
// the test of valid_referers.
func isFree(d *directive) bool {
	returns := !slices.ContainsFunc(d.block, func(d *directive) bool { return diverts(d) && d.name != "return" })
	switch d.arg(0) {
	case "$invalid_referer":
		return len(d.args) == 1 || d.arg(1) == "=" && d.arg(2) == "1"
	case "$request_method":
		return returns && otherMethods().MatchString(d.arg(1)+" "+d.arg(2))
	case "$http_user_agent", "$http_range":
		return returns && !strings.HasPrefix(d.arg(1), "!")
	case "!-f", "!-e", "!-d", "-f", "-e", "-d":
		path := strings.NewReplacer("$request_filename", "", "$document_root", "", "$uri", "").Replace(d.arg(1))
		return returns && !strings.Contains(path, "$")
	}
	return false
}

// pathCondition returns the operator and the expression of a condition on the path; empty = it is
// on something else. A folder may be in front of the path in $request_filename.
func pathCondition(d *directive) (op, text string) {
	onPath := slices.Contains([]string{"$uri", "$document_uri", "$request_uri"}, d.arg(0)) ||
		d.arg(0) == "$request_filename" && strings.HasPrefix(d.arg(2), `\.`)
	if !onPath || !strings.HasPrefix(d.arg(1), "~") {
		return "", ""
	}
	return d.arg(1), d.arg(2)
}

// diverts reports whether a directive of an if responds with something else than the file.
func diverts(d *directive) bool {
	switch d.name {
	case "return":
		return !isHTTPS(d)
	case "rewrite":
		return !isHTTPS(d) && (d.arg(2) != "break" || !strings.Contains(d.arg(1), "$"))
	case "deny", "proxy_pass", "ngx_fastdfs_module":
		return true
	}
	return isCheck(d.name) || slices.Contains(applications, d.name)
}
