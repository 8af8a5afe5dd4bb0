package migrate

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxRewrites bounds the rewrites and servers that are followed, as nginx does.
const maxRewrites = 10

// outcomeOf returns the outcome for a path in a server. rewrites is the number of rewrites and
// servers of this nginx that the request has passed.
func (t *translator) outcomeOf(s *server, path string, rewrites int) outcome {
	if d := returns(s.d.block, path); d != nil {
		if d.name == "if" && (rejects(d) || !keepsPath(d)) {
			return outcome{guard: d}
		}
		return outcome{}
	}
	to, d := rewritten(s.d.block, path, true)
	o := t.locationOutcome(s, cmp.Or(to, path), rewrites)
	if to == "" {
		o.guard = cmp.Or(o.guard, d)
	}
	return o
}

// locationOutcome is outcomeOf after the directives of the server.
func (t *translator) locationOutcome(s *server, path string, rewrites int) outcome {
	l, _ := find(s.locations, path)
	if l == nil {
		return outcome{}
	}
	o := outcome{loc: l}
	all := l.path == "/" // a location for all other paths, not for files in particular
	if d := returns(l.d.block, path); d != nil {
		switch {
		case rejects(d) && (!all || d.name == "if"), t.aboutFiles(l) && !keepsPath(d):
			o.guard = d
		case d.arg(0) == "403" || d.arg(0) == "401":
			o.rest = d
		}
		return o
	}
	if rules := named(l.d.block, "allow", "deny"); all && len(rules) > 0 && accessOf(rules).empty() {
		o.rest = rules[0]
	}
	if o.via = t.serves(s, l); o.via == nil {
		application := first(l.d.block, applications...)
		if application != nil && t.aboutFiles(l) {
			o.guard = application
		}
		if all || first(l.d.block, "fastcgi_pass") != nil {
			return o
		}
	}
	if o.guard = cmp.Or(o.guard, t.guardOf(s, l, rewrites > 0)); o.guard == nil {
		o.guard = t.guardBehind(s, o, path, rewrites)
	}
	to, d := rewritten(l.d.block, path, false)
	switch {
	case to == path || o.guard != nil:
	case to == "" || rewrites == maxRewrites:
		o.guard = d
	default:
		next := t.locationOutcome(s, to, rewrites+1)
		if next.open() {
			return next
		}
		o.guard = cmp.Or(next.guard, otherRules(s, l, next.loc))
	}
	return o
}

// guardBehind returns the check of a place to which nginx passes a request on: another location,
// also one for missing files, an application, or another server of this nginx.
func (t *translator) guardBehind(s *server, o outcome, path string, rewrites int) *directive {
	chain := s.chain(o.loc)
	for _, d := range append(named(o.loc.d.block, "try_files"), inForce(chain, "error_page")...) {
		if next := s.byName(d.arg(len(d.args) - 1)); next != nil && next != o.loc {
			if guard := cmp.Or(t.guardOf(s, next, true), otherRules(s, o.loc, next)); guard != nil {
				return guard
			}
		}
	}
	pass := o.via
	if pass == nil || pass.name != "proxy_pass" {
		pass = first(o.loc.d.block, "proxy_pass")
	}
	switch {
	case pass == nil:
		return nil
	case pass == o.via && t.accelerates(s):
		return pass
	}
	return t.guardOfPass(s, o.loc, pass, path, rewrites)
}

// guardOfPass returns the check of a proxy_pass: the check of the server of this nginx that it
// leads to, or the condition that chooses its target.
func (t *translator) guardOfPass(s *server, l *location, pass *directive, path string, rewrites int) *directive {
	for _, block := range s.chain(l) {
		for _, d := range named(block, "if") {
			if !isFree(d) && slices.ContainsFunc(named(d.block, "set"), func(set *directive) bool {
				return strings.Contains(pass.arg(0), set.arg(0))
			}) {
				return d
			}
		}
	}
	_, uri, _ := strings.Cut(pass.arg(0), "://")
	switch uri = strings.TrimPrefix(strings.TrimPrefix(uri, target(pass)), ":"); {
	case uri == "" || uri == "$request_uri":
	case strings.Contains(uri, "$") || l.isExpression():
		path = "" // not known
	default:
		path = uri + strings.TrimPrefix(path, l.path)
	}
	for _, next := range t.ownServers(pass) {
		if next == s || rewrites == maxRewrites {
			continue
		}
		behind := t.outcomeOf(next, path, rewrites+1)
		guard := cmp.Or(behind.guard, behind.rest)
		switch {
		case path == "":
			guard = t.anyCheck(next, next.every())
		case guard == nil && behind.loc != nil:
			guard = t.guardOf(next, behind.loc, false)
		}
		if guard != nil {
			return guard
		}
	}
	return nil
}

// applications are the directives that pass requests on to scripts.
var applications = []string{"fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass"}

// place returns the location of an outcome, or the check of the server.
func (o outcome) place() *directive {
	switch {
	case o.finer != nil:
		return o.finer.d
	case o.loc != nil:
		return o.loc.d
	}
	return cmp.Or(o.guard, o.idle)
}

// returns returns the directive by which a block ends the request for a path, or nil: a return, a
// redirect, or an if on the path with a return or a rewrite to another path.
func returns(block []*directive, path string) *directive {
	for _, d := range block {
		switch d.name {
		case "return":
			return d
		case "rewrite":
			if isHTTPSRedirect(d) {
				return d
			}
		case "if":
			if matchesPath(d.args, path) && slices.ContainsFunc(d.block, func(inner *directive) bool {
				return inner.name == "return" || inner.name == "rewrite" && diverts(inner)
			}) {
				return d
			}
		}
	}
	return nil
}

// reply returns a return, or the return in an if; nil if the if has a rewrite.
func reply(d *directive) *directive {
	if d.name == "if" {
		return first(d.block, "return")
	}
	return d
}

// rejects reports whether a return, or the return in an if, is an error. A rewrite in an if counts
// as an error.
func rejects(d *directive) bool {
	d = reply(d)
	return d == nil || d.arg(0) >= "400" && d.arg(0) <= "599"
}

var pathAtEnd = regexp.MustCompile(`^https?://[^?]*\$(request_uri|uri|document_uri|[0-9])(\$is_args\$args)?\??$`)

// keepsPath reports whether a return or rewrite sends clients to the same path at another URL. A
// redirect to a fixed page may ask for a login.
func keepsPath(d *directive) bool {
	if d = reply(d); d == nil {
		return false
	}
	to := d.arg(len(d.args) - 1)
	if d.name == "rewrite" {
		to = d.arg(1)
	}
	return pathAtEnd.MatchString(to)
}

// pathVariables are the variables with the path of the request.
var pathVariables = []string{"$uri", "$request_uri", "$request_filename", "$document_uri"}

// pathPattern returns the expression of a condition on the path. A condition on the query does not
// count: it may test a token.
func pathPattern(condition []string) (pattern string, ok bool) {
	if len(condition) != 3 || !slices.Contains(pathVariables, condition[0]) {
		return "", false
	}
	op, pattern := condition[1], condition[2]
	query := condition[0] == "$request_uri" && (strings.HasPrefix(op, "!") || strings.ContainsAny(pattern, "=&") ||
		strings.Contains(pattern, `\?`) || strings.Contains(pattern, "[?"))
	folder := condition[0] == "$request_filename" && strings.HasPrefix(pattern, "^")
	switch {
	case query || folder:
		return "", false
	case strings.HasSuffix(op, "="):
		pattern = "^" + regexp.QuoteMeta(pattern) + "$"
	case strings.HasSuffix(op, "*"):
		pattern = "(?i)" + pattern
	}
	_, err := regexp.Compile(pattern)
	return pattern, err == nil
}

// matchesPath reports whether the condition of an if is on the path, and true for a path.
func matchesPath(condition []string, path string) bool {
	_, ok := pathPattern(condition)
	return ok && holds(condition, path)
}

// rewritten returns the path after the rewrites of a server or a location, if nginx looks for a
// location with it, and the last rewrite. The path is empty if the rewrite leads to a fixed page,
// or cannot be read.
func rewritten(block []*directive, path string, inServer bool) (to string, last *directive) {
	for _, d := range named(block, "rewrite") {
		flag := d.arg(2)
		if flag != "" && flag != "last" && (flag != "break" || !inServer) || strings.Contains(d.arg(1), "://") {
			continue
		}
		re, loose := compile(d.arg(0))
		if re == nil {
			return "", d
		}
		m := re.FindStringSubmatch(path)
		if m == nil {
			continue
		}
		template, _, _ := strings.Cut(d.arg(1), "?")
		next, ok := expand(template, path, re.SubexpNames(), m)
		if loose || !ok || next == template {
			return "", d
		}
		if path, last = next, d; flag != "" {
			break
		}
	}
	return path, last
}

var variable = regexp.MustCompile(`\$(?:\{[0-9A-Za-z_]+\}|[0-9]|[A-Za-z_]+)`)

// expand replaces the variables for parts of the expression of a rewrite and for the path; ok is
// false if the text has other variables.
func expand(text, path string, names, parts []string) (expanded string, ok bool) {
	ok = true
	expanded = variable.ReplaceAllStringFunc(text, func(v string) string {
		name := strings.Trim(v, "${}")
		if n, err := strconv.Atoi(name); err == nil && n < len(parts) {
			return parts[n]
		}
		if i := slices.Index(names, name); i > 0 {
			return parts[i]
		}
		ok = ok && slices.Contains(pathVariables, "$"+name)
		return path
	})
	return expanded, ok
}

// accelerates reports whether an application behind nginx decides about files: X-Accel-Redirect
// leads to an internal location that serves them.
func (t *translator) accelerates(s *server) (found bool) {
	var pages []*location
	for _, d := range named(s.d.block, "error_page") {
		l, _ := find(s.locations, d.arg(len(d.args)-1))
		pages = append(pages, l)
	}
	for _, l := range s.every() {
		serves := len(named(l.d.block, "alias", "root", "ngx_fastdfs_module", "proxy_pass")) > 0
		found = found || serves && l.op != "=" && l.op != "@" && !slices.Contains(pages, l) &&
			first(l.d.block, "internal") != nil
	}
	return found
}
