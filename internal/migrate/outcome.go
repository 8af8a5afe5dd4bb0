package migrate

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// maxRewrites bounds the rewrites that are followed, as nginx does.
const maxRewrites = 10

// outcomeOf follows nginx with one path, behind some rewrites.
func (t *translator) outcomeOf(s *server, path string, rewrites int) outcome {
	if d := returns(s.d.block, path); d != nil {
		if d.name == "if" && rejects(d) {
			return outcome{guard: d}
		}
		return outcome{}
	}
	l, _ := find(s.locations, path)
	if l == nil {
		return outcome{}
	}
	o := outcome{loc: l}
	all := l.path == "/" // a location for the rest, which says nothing about files
	if d := returns(l.d.block, path); d != nil {
		switch {
		case rejects(d) && (!all || d.name == "if"):
			o.guard = d
		case d.arg(0) == "403" || d.arg(0) == "401":
			o.rest = d
		}
		return o
	}
	if rules := named(l.d.block, "allow", "deny"); all && len(rules) > 0 && accessOf(rules).empty() {
		o.rest = rules[0]
	}
	if o.via = t.serves(s, l); o.via == nil && (all || first(l.d.block, "fastcgi_pass") != nil) {
		return o
	}
	o.guard = t.guardOf(s, l, rewrites > 0)
	for _, d := range named(l.d.block, "try_files") {
		if next := s.byName(d.arg(len(d.args) - 1)); next != nil && next != l && o.guard == nil {
			o.guard = t.guardOf(s, next, true)
		}
	}
	if o.guard == nil && o.via != nil && o.via.name == "proxy_pass" && t.accelerates(s) {
		o.guard = o.via
	}
	if to, d := rewritten(l.d.block, path); o.guard == nil && to != path {
		if o.guard = d; rewrites < maxRewrites {
			o.guard = t.outcomeOf(s, to, rewrites+1).guard
		}
	}
	return o
}

// place is the location of an outcome, or the check of the server.
func (o outcome) place() *directive {
	switch {
	case o.finer != nil:
		return o.finer.d
	case o.loc != nil:
		return o.loc.d
	}
	return cmp.Or(o.guard, o.idle)
}

// returns is the return or redirect by which a block ends the request for a path, or an if on it
// with a return.
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
			if len(named(d.block, "return")) > 0 && matchesPath(d.args, path) {
				return d
			}
		}
	}
	return nil
}

// rejects reports whether a return, or that in an if, is an error.
func rejects(d *directive) bool {
	if d.name == "if" {
		d = named(d.block, "return")[0]
	}
	return d.arg(0) >= "400" && d.arg(0) <= "599"
}

// pathVariables are the variables with the path of the request.
var pathVariables = []string{"$uri", "$request_uri", "$request_filename", "$document_uri"}

// pathPattern returns the expression of a condition on the path. One on the query is none: it may
// ask for a token.
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

// matchesPath reports whether the condition of an if is one on the path, and true.
func matchesPath(condition []string, path string) bool {
	pattern, ok := pathPattern(condition)
	return ok && regexp.MustCompile(pattern).MatchString(path) != strings.HasPrefix(condition[1], "!")
}

// rewritten returns the path behind the rewrites of a location, if the request begins anew with it.
func rewritten(block []*directive, path string) (to string, last *directive) {
	for _, d := range named(block, "rewrite") {
		re, err := regexp.Compile(d.arg(0))
		if err != nil || d.arg(2) != "" && d.arg(2) != "last" || strings.Contains(d.arg(1), "://") {
			continue
		}
		m := re.FindStringSubmatchIndex(path)
		if m == nil {
			continue
		}
		template, _, _ := strings.Cut(braces.ReplaceAllString(d.arg(1), "$${$1}"), "?")
		path, last = string(re.ExpandString(nil, template, path, m)), d
		if d.arg(2) == "last" {
			break
		}
	}
	return path, last
}

// braces are the groups of an expression in its replacement.
var braces = regexp.MustCompile(`\$([0-9])`)

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

// language is the expression of all paths of files in the form.
func (f form) language() string {
	group := ""
	if f.group {
		group = "/[A-Za-z0-9]+"
	}
	return literal(f.prefix, false) + group + "/M[0-9A-F]{2}/[0-9A-F]{2}/[0-9A-F]{2}/[A-Za-z0-9_-][A-Za-z0-9._-]*$"
}

// closeFiner closes the kinds of files of which a server rejects a part that no selector of the
// gateway describes. A server of which that cannot be found out keeps its nginx.
func (t *translator) closeFiner(s *server) {
	if all, of := s.expressions(); len(all) == len(of) && t.anyCheck(s, s.every()) == nil {
		return
	}
	classes, ok := t.classes(s)
	var guard *directive
	for _, class := range classes {
		finer := t.outcomeOf(s, class.path, 0)
		for _, c := range t.cellsOf(class.path) {
			o := s.cells[c]
			check := cmp.Or(finer.guard, otherRules(s, o, finer))
			guard = cmp.Or(guard, o.guard, check)
			if check == nil || o.guard != nil || o.idle != nil || isImageFilter(check) {
				continue
			}
			if finer.loc != nil && finer.loc.op == "=" {
				t.say(finer.loc.d, "nginx rejects this file, and the gateway has no rules for one file",
					"delete the file by the FastDFS client, or move it behind nginx")
				continue
			}
			if e := t.closedExt(s, c, class.path, check); e != "" {
				t.say(check, "nginx also rejects names with ."+e+" in the middle, and longer extensions",
					"compare links of such files by gateway compare")
				continue
			}
			switch {
			case o.via != nil:
				o.guard = check
			case check.name == "valid_referers": // the referers of files that this server does not serve
				continue
			default:
				o.idle = check
			}
			o.finer = finer.loc
			s.cells[c] = o
		}
	}
	files := s.every()
	if ok {
		files = s.locationsOf(classes)
	}
	if i := slices.IndexFunc(files, func(l *location) bool { return l.loose }); i >= 0 {
		s.unclear = files[i].d
	}
	if !ok || s.unclear != nil {
		s.left = cmp.Or(guard, t.anyCheck(s, files))
	}
}

// locationsOf returns the locations for some classes, and those whose expression cannot be read.
func (s *server) locationsOf(classes []class) (found []*location) {
	_, of := s.expressions()
	for i, l := range of {
		if slices.ContainsFunc(classes, func(c class) bool { return c.matches[i] }) {
			found = append(found, l)
		}
	}
	for _, l := range s.every() {
		if l.re == nil && l.loose {
			found = append(found, l)
		}
	}
	return found
}

// anyCheck returns a check of some locations.
func (t *translator) anyCheck(s *server, locations []*location) *directive {
	for _, l := range locations {
		guard, rules := t.guardOf(s, l, false), inForce(s.chain(l), "allow", "deny", "valid_referers")
		reply := first(l.d.block, "return")
		switch {
		case guard != nil:
			return guard
		case isNeedless(l):
		case len(rules) > 0:
			return rules[0]
		case reply != nil && l.path != "/" && rejects(reply):
			return reply
		}
	}
	return nil
}

// closedExt returns an extension in a name that a check closes as a whole. The expression of such a
// check has no end; it must not close all other files.
func (t *translator) closedExt(s *server, c cell, path string, check *directive) string {
	name := strings.ToLower(path[strings.LastIndexByte(path, '/'):])
	for _, e := range t.universe.exts[1:] {
		whole := s.cells[cell{c.group, c.path, e}]
		if whole.guard == check && whole.finer == nil && c.ext != e && strings.Contains(name, "."+e) {
			return e
		}
	}
	return ""
}

// otherRules returns the rule by which fewer clients may read some files of a kind than the others.
func otherRules(s *server, o, finer outcome) *directive {
	if finer.via == nil || finer.loc == o.loc {
		return nil
	}
	for _, names := range [][]string{{"allow", "deny"}, {"valid_referers"}} {
		rules := inForce(s.chain(finer.loc), names...)
		if len(rules) > 0 && !slices.EqualFunc(rules, inForce(s.chain(o.loc), names...),
			func(a, b *directive) bool { return a.String() == b.String() }) {
			return rules[0]
		}
	}
	return nil
}

var (
	onePart   = regexp.MustCompile(`^/[A-Za-z0-9]+$`)
	groupLike = regexp.MustCompile(`^/group[0-9]*$`)
)

// expressions returns the expressions by which a server distinguishes paths, those of locations
// first.
func (s *server) expressions() (all []string, of []*location) {
	blocks := [][]*directive{s.d.block}
	for _, l := range s.every() {
		blocks = append(blocks, l.d.block)
		switch {
		case l.re != nil:
			all, of = append(all, l.re.String()), append(of, l)
		case l.op != "@" && !l.isExpression():
			text := literal(l.path, l.op == "=")
			if l.op != "=" && onePart.MatchString(l.path) && !groupLike.MatchString(l.path) {
				text += "(/|$)" // /private means /private and /private/, not all that begins so
			}
			all, of = append(all, text), append(of, l)
		}
	}
	for _, block := range blocks {
		for _, d := range named(block, "if", "rewrite") {
			if pattern, ok := pathPattern(d.args); ok {
				all = append(all, pattern)
			} else if d.name == "rewrite" {
				all = append(all, d.arg(0))
			}
		}
	}
	return all, of
}

// classes returns the classes of the files of a server by its patterns and by the cells.
func (t *translator) classes(s *server) ([]class, bool) {
	all, _ := s.expressions()
	for _, g := range t.universe.groups {
		if t.form.group && g != otherGroup {
			all = append(all, literal(t.form.prefix+"/"+g+"/", false))
		}
	}
	for _, p := range t.universe.paths {
		if p != otherPath {
			all = append(all, "/"+p+"/")
		}
	}
	for _, e := range t.universe.exts[1:] {
		all = append(all, `(?i)\.`+regexp.QuoteMeta(e)+"$")
	}
	return classesOf(program(t.form.language()), programs(all))
}

// cellsOf returns the kinds of files that a path is one of: one, if the group is in the path.
func (t *translator) cellsOf(path string) (cells []cell) {
	path = strings.TrimPrefix(path, t.form.prefix)
	groups := t.universe.groups
	if t.form.group {
		group, rest, _ := strings.Cut(path[1:], "/")
		if path = "/" + rest; !slices.Contains(groups, group) {
			group = otherGroup
		}
		groups = []string{group}
	}
	at, ext := path[1:4], ""
	if !slices.Contains(t.universe.paths, at) {
		at = otherPath
	}
	if i := strings.LastIndexByte(path, '.'); i >= 0 && slices.Contains(t.universe.exts, strings.ToLower(path[i+1:])) {
		ext = strings.ToLower(path[i+1:])
	}
	for _, g := range groups {
		cells = append(cells, cell{g, at, ext})
	}
	return cells
}
