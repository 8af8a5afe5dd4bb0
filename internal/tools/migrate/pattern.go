package migrate

import (
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// Marks in the globs of a pattern, and in the path of a kind of files.
const (
	wild   = '\x02' // in a glob: any text
	run    = '\x01' // in a glob: any text without a slash
	begin  = '\x03' // in a glob that is not complete: the beginning of the path
	end    = '\x04' // its end
	other  = '\x06' // in a path: a text that no pattern names
	letter = '\x07' // in a path: any letters and digits, also none
	hex    = '\x08' // the same of hexadecimal digits
	name   = '\x09' // the same of characters that names of files have
	one    = '\x0b' // in a path: one of these characters
)

// maxGlobs bounds the globs of one expression. Parts with more alternatives become a run.
const maxGlobs = 400

// pattern is the pattern of a location or condition as globs over whole paths.
type pattern struct {
	globs []string
	re    *regexp.Regexp // nil = a prefix
	loose bool           // the globs match more than the expression
	fold  bool
}

// newPattern reads a pattern. An expression that Go cannot read matches any path loosely.
func newPattern(op, text string) pattern {
	switch op {
	case "", "^~":
		return pattern{globs: []string{text + string(wild)}}
	case "=":
		return pattern{globs: []string{text}}
	}
	p := pattern{fold: op == "~*"}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		p.loose = true
		if tree, err = syntax.Parse(withoutAssertions(text), syntax.Perl); err != nil {
			p.globs = []string{string(wild)}
			return p
		}
	}
	for _, s := range p.expand(tree) {
		at, to := string(wild), string(wild)
		if strings.HasPrefix(s, string(begin)) {
			at = ""
		}
		if strings.HasSuffix(s, string(end)) {
			to = ""
		}
		if s = strings.Trim(s, string(begin)+string(end)); strings.ContainsAny(s, string(begin)+string(end)) {
			p.loose, s = true, string(wild)
		}
		p.globs = append(p.globs, at+s+to)
	}
	flag := ""
	if p.fold {
		flag = "(?i)"
	}
	p.re, _ = regexp.Compile(flag + text)
	return p
}

// expand returns the globs of an expression.
func (p *pattern) expand(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		text := string(re.Rune)
		if re.Flags&syntax.FoldCase != 0 {
			p.fold = true
			text = strings.ToLower(text)
		}
		return []string{text}
	case syntax.OpCharClass:
		return p.class(re.Rune)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []string{string(wild)}
	case syntax.OpBeginText, syntax.OpBeginLine:
		return []string{string(begin)}
	case syntax.OpEndText, syntax.OpEndLine:
		return []string{string(end)}
	case syntax.OpCapture:
		return p.expand(re.Sub[0])
	case syntax.OpQuest:
		return append(p.expand(re.Sub[0]), "")
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		if sub := re.Sub[0]; sub.Op == syntax.OpCharClass && !inClass(sub.Rune, '/') {
			p.loose = p.loose || !p.digitsOnly(sub.Rune)
			return []string{string(run)}
		} else if sub.Op != syntax.OpAnyChar && sub.Op != syntax.OpAnyCharNotNL {
			p.loose = true
		}
		return []string{string(wild)}
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			all = append(all, p.expand(sub)...)
		}
		return all
	case syntax.OpConcat:
		all := []string{""}
		for _, sub := range re.Sub {
			parts, joined := p.expand(sub), []string(nil)
			if len(parts)*len(all) > maxGlobs {
				p.loose, parts = true, []string{string(wild)}
			}
			for _, a := range all {
				for _, b := range parts {
					joined = append(joined, a+b)
				}
			}
			all = joined
		}
		return all
	case syntax.OpEmptyMatch:
		return []string{""}
	}
	p.loose = true
	return []string{string(wild)}
}

// class returns the characters of a class, or a run.
func (p *pattern) class(ranges []rune) (all []string) {
	for i := 0; i < len(ranges); i += 2 {
		for c := ranges[i]; c <= ranges[i+1]; c++ {
			if all = append(all, string(c)); len(all) > 36 || c > '~' {
				p.loose = true
				return []string{string(wild)}
			}
		}
	}
	return all
}

func inClass(ranges []rune, c rune) bool {
	for i := 0; i < len(ranges); i += 2 {
		if ranges[i] <= c && c <= ranges[i+1] {
			return true
		}
	}
	return false
}

// digitsOnly reports whether a class is one of digits, as in group\d+: kinds of files that patterns
// name are compared with the expression itself.
func (p *pattern) digitsOnly(ranges []rune) bool { return len(ranges) == 2 && inClass(ranges, '5') }

// match reports whether a pattern can match a file of a kind, and whether it matches all of them.
func (p pattern) match(c cell, groupInURL bool) (can, all bool) {
	path := c.path0(groupInURL)
	for _, g := range p.globs {
		if p.fold {
			g, path = strings.ToLower(g), strings.ToLower(path)
		}
		if !can && glob(g, path, true) {
			can = true
		}
		if !all && can && glob(g, path, false) {
			all = true
		}
	}
	if all && p.loose {
		all = p.re != nil && c.group != otherGroup && c.path != otherPath && p.re.MatchString(c.sample(groupInURL))
	}
	return can, all && (p.re == nil || c.group == otherGroup || c.path == otherPath ||
		p.re.MatchString(c.sample(groupInURL)))
}

// glob reports whether a glob matches a path. With loose, the characters of the glob may be a part
// of an unknown text of the path.
func glob(g, path string, loose bool) bool {
	for i := 0; i < len(g) && i < len(path) && g[i] > one && path[i] > one; i++ {
		if g[i] != path[i] {
			return false
		}
	}
	now, next := make([]bool, len(g)+1), make([]bool, len(g)+1)
	now[0] = true
	skip := func(set []bool) {
		for i := range g {
			if set[i] && (g[i] == wild || g[i] == run) {
				set[i+1] = true
			}
		}
	}
	skip(now)
	for k := range len(path) {
		c := path[k]
		clear(next)
		alive := false
		for i, on := range now {
			if !on {
				continue
			}
			unknown := c >= letter && c <= name
			next[i] = next[i] || unknown && loose
			if i < len(g) {
				next[i] = next[i] || g[i] == wild || g[i] == run && c != '/'
				if c == one && loose && isIn(c, g[i]) {
					next[i+1] = true
				} else if unknown && loose {
					for j := i; j < len(g) && isIn(c, g[j]); j++ {
						next[j+1] = true
					}
				} else if g[i] == c {
					next[i+1] = true
				}
			}
			alive = alive || next[i] || i < len(g) && next[i+1]
		}
		if !alive {
			return false
		}
		skip(next)
		now, next = next, now
	}
	return now[len(g)]
}

// isIn reports whether an unknown text of a kind can have a character of a glob.
func isIn(kind, c byte) bool {
	digit, lower, upper := c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z'
	switch {
	case c == wild || c == run:
		return true
	case kind == hex:
		return digit || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
	case kind == letter:
		return digit || lower || upper
	}
	return c != '/' && c != '.' && c > ' '
}

// assertion matches the assertions of PCRE, which Go does not have.
var assertion = regexp.MustCompile(`\(\?(?:=|!|<=|<!)`)

func withoutAssertions(text string) string {
	for at := assertion.FindStringIndex(text); at != nil; at = assertion.FindStringIndex(text) {
		to := at[1]
		for depth := 1; to < len(text) && depth > 0; to++ {
			switch text[to] {
			case '\\':
				to++
			case '(':
				depth++
			case ')':
				depth--
			}
		}
		text = text[:at[0]] + text[min(to, len(text)):]
	}
	return text
}

// otherGroup and otherPath are the group and the store path of files that no pattern names.
const (
	otherGroup = "*"
	otherPath  = "M*"
)

// cell is a kind of files: by group, store path and extension in lower case; empty = one that no
// pattern names.
type cell struct{ group, path, ext string }

// path0 returns the path of the files with marks for what differs between them.
func (c cell) path0(groupInURL bool) string {
	const any = string(letter) + string(other) + string(letter)
	group, path, ext := "/"+c.group, c.path, c.ext
	switch {
	case !groupInURL:
		group = ""
	case c.group == otherGroup:
		group = "/" + any
	}
	if c.path == otherPath {
		path = "M" + string(hex) + string(other)
	}
	if ext == "" {
		ext = string(other)
	}
	return group + "/" + path + "/" + string(hex) + "/" + string(hex) + "/" + string(one) + string(name) + "." + ext
}

// sample returns the path of a file.
func (c cell) sample(groupInURL bool) string {
	path := "/" + c.path + "/00/1A/wKgABF5xyzmAAAAAAAAAAAAAAAA123." + c.ext
	if groupInURL {
		path = "/" + c.group + path
	}
	return path
}

var (
	namedGroup = regexp.MustCompile(`^\x02?/?([A-Za-z0-9]{1,16})[/\x02]`)
	namedPath  = regexp.MustCompile(`(?:^|[/\x02])(M[0-9A-F]{2})(?:[/\x02]|$)`)
	namedExt   = regexp.MustCompile(`[.\x02]([A-Za-z0-9_-]{1,6})\x02?$`)
	storePath  = regexp.MustCompile(`^M[0-9A-F]{2}$`)
)

// universe is the set of kinds of files that patterns and mod_fastdfs.conf name.
type universe struct {
	groups, paths []string // otherGroup and otherPath are last
	exts          []string // the empty one is first
	all           []cell
}

// add adds the names of a pattern.
func (u *universe) add(p pattern, groupInURL bool, types map[string]string) {
	for _, g := range p.globs {
		if m := namedGroup.FindStringSubmatch(g); m != nil && groupInURL && !storePath.MatchString(m[1]) {
			u.groups = union(u.groups, m[1])
			if p.fold {
				u.groups = union(u.groups, strings.ToLower(m[1]))
			}
		}
		if m := namedPath.FindStringSubmatch(g); m != nil && len(u.paths) < 32 {
			u.paths = union(u.paths, m[1])
		}
		if m := namedExt.FindStringSubmatch(g); m != nil {
			u.exts = union(u.exts, strings.ToLower(m[1]))
			for _, ext := range slices.Sorted(maps.Keys(types)) { // \.php is also for .php5
				if g[len(g)-1] == wild && strings.HasPrefix(ext, strings.ToLower(m[1])) {
					u.exts = union(u.exts, ext)
				}
			}
		}
	}
}

// finish makes the kinds of files of all names; it reports whether there are few enough.
func (u *universe) finish() bool {
	slices.Sort(u.paths)
	u.groups, u.paths, u.exts = append(u.groups, otherGroup), append(u.paths, otherPath), append([]string{""},
		u.exts...)
	if len(u.groups)*len(u.paths)*len(u.exts) > maxCells {
		return false
	}
	for _, g := range u.groups {
		for _, p := range u.paths {
			for _, e := range u.exts {
				u.all = append(u.all, cell{g, p, e})
			}
		}
	}
	return true
}

// maxCells bounds the kinds of files.
const maxCells = 20_000
