package migrate

import (
	"cmp"
	"slices"
	"strings"
)

// judge finds the rejection and the rule of a location or server.
func (t *translator) judge(l *location) {
	block := l.d.block
	if l.area.none = l.area.none || first(block, noFiles...) != nil; l.area.none {
		return
	}
	if check := t.checkIn(l); check != nil {
		l.rule = closedBy(check)
		return
	}
	if reply := first(block, "return"); reply != nil && !isHTTPS(reply) {
		l.reject = reply
	} else if !l.serves && l.path != "/" {
		l.reject = first(block, append(applications, "proxy_pass")...)
	}
	l.rule = t.ruleOf(l)
}

// checkIn returns a check of a location that the gateway does not have, or nil. A condition on the
// path, or a rewrite of the whole server, is one for a part of its files.
func (t *translator) checkIn(l *location) (check *directive) {
	chain := l.chain()
	for i, block := range chain {
		self, http := i == 0, i == len(chain)-1
		for _, d := range block {
			switch {
			case d.name == "location" || d.name == "server" || isMaker(d):
			case isCheck(d.name):
				if rowOf(d.name).applies(d) && slices.Contains(inForce(chain, d.name), d) {
					check = cmp.Or(check, d)
				}
			case d.name == "limit_except" && !d.has("GET") && len(d.block) > 0,
				d.name == "proxy_pass" && self && l.serves && t.decides(l, d),
				d.name == "return" && i == len(chain)-2 && !isHTTPS(d), // of the server: before the locations
				slices.Contains(t.tree.missing, d) && mayCheck(d.arg(0)),
				looksLikeCheck(d):
				check = cmp.Or(check, d)
			case d.name == "if" && slices.ContainsFunc(d.block, diverts) && !isFree(d):
				if op, text := pathCondition(d); op == "" {
					check = cmp.Or(check, d)
				} else if a := areaOf(op, text, t.names); self && !a.none {
					l.parts = append(l.parts, part{d, a.outer})
				}
			case http || !t.leads(l.s, d):
			case d.name == "rewrite" && l == l.s.self:
				l.parts = append(l.parts, part{d, areaOf("~", d.arg(0), t.names).outer})
			case d.name != "rewrite" || i < len(chain)-2:
				check = cmp.Or(check, d)
			}
		}
	}
	return check
}

// looksLikeCheck reports whether an unknown directive has the name of a check.
func looksLikeCheck(d *directive) bool {
	return !isKnown(d.name) && d.arg(0) != "off" && d.name != "include" && hasWord(d.name, checkWords)
}

// decides reports whether a proxy_pass leads to a program that may decide about files: one of this
// host, another server of this nginx with a check, one that sends X-Accel-Redirect, or a variable.
func (t *translator) decides(l *location, pass *directive) bool {
	hosts := []string{target(pass)}
	if up := t.upstreamOf(pass); up != nil {
		hosts = nil
		for _, d := range named(up.block, "server") {
			hosts = append(hosts, d.arg(0))
		}
	}
	return slices.ContainsFunc(l.s.locations, func(o *location) bool {
		return first(o.d.block, "internal") != nil && !o.isPage() &&
			first(o.d.block, "root", "alias", "ngx_fastdfs_module") != nil
	}) || slices.ContainsFunc(hosts, func(host string) bool {
		to := listen{address: listenAddress(host)}
		same := without(t.all, func(o *server) bool {
			return o == l.s && !to.isLoopback() ||
				!slices.ContainsFunc(o.listens, func(l listen) bool { return l.port() == to.port() })
		})
		return strings.Contains(host, "$") || to.isLoopback() && len(same) == 0 ||
			slices.ContainsFunc(same, func(o *server) bool { return hasChecks(o.d.block) })
	})
}

var page = lazy(`^[^*+]*\.html\$?$`)

// isPage reports whether a location is for a page of errors.
func (l *location) isPage() bool { return page().MatchString(l.path) }

// leads reports whether a directive redirects clients to another path or server, or passes requests
// on to other locations while one of the server has a check.
func (t *translator) leads(s *server, d *directive) bool {
	to, leads := d.arg(len(d.args)-1), false
	switch d.name {
	case "rewrite":
		if strings.HasPrefix(d.arg(1), "http") || d.arg(2) == "redirect" || d.arg(2) == "permanent" {
			return !isHTTPS(d)
		}
		leads = d.arg(2) != "break"
	case "try_files":
		leads = !strings.HasPrefix(to, "=")
	case "error_page":
		leads = strings.HasPrefix(to, "@") || strings.Contains(to, "$")
	}
	return leads && slices.ContainsFunc(s.locations, func(l *location) bool {
		return !l.isPage() && hasChecks(l.d.block)
	})
}

// hasChecks reports whether a block or one in it decides about requests.
func hasChecks(block []*directive) bool {
	return slices.ContainsFunc(block, func(d *directive) bool {
		return isCheck(d.name) && !isMaker(d) || d.name == "allow" || d.name == "deny" || d.name == "valid_referers" ||
			looksLikeCheck(d) ||
			d.name == "if" && slices.ContainsFunc(d.block, diverts) || hasChecks(d.block)
	})
}

// methods matches a list of methods, as in ^(GET|HEAD)$.
var methods = lazy(`^\^?\(?[A-Z]+(\|[A-Z]+)*\)?\$?$`)

// isFree reports whether the condition of an if shows that it is no check of rights: a test that
// rejects browsers by their name, ranges, files that are not there, or methods other than GET, or
// the test of valid_referers.
func isFree(d *directive) bool {
	variable, op, value := d.arg(0), d.arg(1), d.arg(2)
	not := strings.HasPrefix(op, "!")
	if variable == "$invalid_referer" {
		return op == "" || op == "=" && value == "1"
	}
	if slices.ContainsFunc(d.block, func(d *directive) bool { return diverts(d) && d.name != "return" }) {
		return false
	}
	switch variable {
	case "$request_method":
		get := slices.Contains(strings.FieldsFunc(value, func(r rune) bool { return r < 'A' || r > 'Z' }), "GET")
		return methods().MatchString(value) && get == not
	case "$http_user_agent", "$http_range":
		return !not && !strings.Contains(value, "(?!")
	case "!-f", "!-e", "!-d", "-f", "-e", "-d":
		return !strings.Contains(strings.NewReplacer("$request_filename", "", "$document_root", "", "$uri", "").
			Replace(op), "$")
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
	return isCheck(d.name) && !isMaker(d) || slices.Contains(applications, d.name)
}
