package migrate

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// language returns the expression for all paths of files in the form.
func (f form) language() string {
	group := ""
	if f.group {
		group = "/[A-Za-z0-9]+"
	}
	return literal(f.prefix, false) + group + "/M[0-9A-F]{2}/[0-9A-F]{2}/[0-9A-F]{2}/[A-Za-z0-9_-][A-Za-z0-9._-]*$"
}

// closeFiner closes the kinds of files of which a server rejects a part that no selector of the
// gateway describes. A server with a check stays in nginx if such parts cannot be determined.
func (t *translator) closeFiner(s *server) {
	behind := t.serversBehind(s)
	if all, of := s.expressions(); len(all) == len(of) && len(behind) == 0 && t.anyCheck(s, s.every()) == nil {
		return
	}
	classes, ok := s.classes()
	var guard *directive
	for _, class := range classes {
		finer := t.outcomeOf(s, class.path, 0)
		for _, c := range t.cellsOf(class.path) {
			o := s.cells[c]
			check := finer.guard
			if check == nil && finer.via != nil {
				check = otherRules(s, o.loc, finer.loc)
			}
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
		for _, next := range behind {
			s.left = cmp.Or(s.left, t.anyCheck(next, next.every()))
		}
	}
}

// serversBehind returns the other servers of this nginx if a server passes requests on to one of
// them.
func (t *translator) serversBehind(s *server) []*server {
	other := func(next *server) bool { return next != s }
	if !slices.ContainsFunc(s.every(), func(l *location) bool {
		return slices.ContainsFunc(named(l.d.block, "proxy_pass"), func(pass *directive) bool {
			return slices.ContainsFunc(t.ownServers(pass), other)
		})
	}) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(t.all), func(next *server) bool { return next == s })
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

// anyCheck returns the first check of some locations, or nil.
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

// closedExt returns the extension that a check closes completely and that a name has in the middle;
// empty = none. The expression of such a check has no anchor at its end, but the check must not
// close all other files.
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

// otherRules returns the first rule of access of a second location if its rules differ from those
// of a first one, or nil.
func otherRules(s *server, one, other *location) *directive {
	if other == nil || other == one {
		return nil
	}
	for _, names := range [][]string{{"allow", "deny"}, {"valid_referers"}} {
		rules := inForce(s.chain(other), names...)
		if len(rules) > 0 && !slices.EqualFunc(rules, inForce(s.chain(one), names...),
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
			} else if re, _ := compile(d.arg(0)); d.name == "rewrite" && re != nil {
				all = append(append(all, re.String()), behindPrefix(all[:len(of)], d.arg(1))...)
			}
		}
	}
	return all, of
}

// behindPrefix returns the rests of expressions that begin with the prefix that a rewrite adds to a
// path: the rests distinguish paths before the rewrite.
func behindPrefix(all []string, template string) (rest []string) {
	prefix, _, _ := strings.Cut(template, "$")
	for _, e := range all {
		if after, ok := strings.CutPrefix(e, literal(prefix, false)); ok && prefix != "" {
			rest = append(rest, "^/?"+after)
		}
	}
	return rest
}

// classes returns the classes of the files of a server by its patterns and by the cells.
func (t *translator) classes(s *server) ([]class, bool) {
	all, _ := s.expressions()
	for _, next := range t.serversBehind(s) {
		more, _ := next.expressions()
		all = append(all, more...)
	}
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

// cellsOf returns the kinds of files of a path: one, if the group is in the path.
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
