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
	run     = '\x01' // in a glob: any text without a slash
	wild    = '\x02' // any text
	begin   = '\x03' // in a glob that is not complete: the beginning of the path
	end     = '\x04' // its end
	char    = '\x05' // one character
	digits  = '\x0e' // any digits
	hexes   = '\x0f' // one character, at least of the hexadecimal digits
	runPlus = '\x10' // run of one or more characters
	plus    = '\x11' // wild of one or more characters

	other  = '\x06' // in a path: a text that no pattern names
	letter = '\x07' // any letters and digits, also none
	hex    = '\x08' // one hexadecimal digit
	name   = '\x09' // any characters that names of files have, also none
	one    = '\x0b' // one of these characters
)

// lastMark is the largest of the marks.
const lastMark = plus

// maxGlobs bounds the globs of one expression. Parts with more alternatives become wild.
const maxGlobs = 400

// pattern is the pattern of a location or condition as globs over whole paths.
type pattern struct {
	globs []string
	loose bool // the globs match more than the expression: it matches no kind of files as a whole
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
		return []string{string(char)}
	case syntax.OpBeginText, syntax.OpBeginLine:
		return []string{string(begin)}
	case syntax.OpEndText, syntax.OpEndLine:
		return []string{string(end)}
	case syntax.OpCapture:
		return p.expand(re.Sub[0])
	case syntax.OpQuest:
		return append(p.expand(re.Sub[0]), "")
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		return p.repeat(re, re.Sub[0])
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			all = append(all, p.expand(sub)...)
		}
		return all
	case syntax.OpConcat:
		all := []string{""}
		for _, sub := range re.Sub {
			all = p.join(all, p.expand(sub))
		}
		return all
	case syntax.OpEmptyMatch:
		return []string{""}
	}
	p.loose = true
	return []string{string(wild)}
}

// join returns each text of a list with each end.
func (p *pattern) join(list, ends []string) (joined []string) {
	if len(ends)*len(list) > maxGlobs {
		p.loose, ends = true, []string{string(wild)}
	}
	for _, a := range list {
		for _, b := range ends {
			joined = append(joined, a+b)
		}
	}
	return joined
}

// repeat returns the globs of a repeated expression.
func (p *pattern) repeat(re, sub *syntax.Regexp) []string {
	anyChar := sub.Op == syntax.OpAnyChar || sub.Op == syntax.OpAnyCharNotNL
	class := sub.Op == syntax.OpCharClass
	switch {
	case re.Op == syntax.OpRepeat && re.Min == re.Max && re.Min <= 4 && (anyChar || class):
		all := []string{""}
		for range re.Min {
			all = p.join(all, p.expand(sub))
		}
		return all
	case re.Op == syntax.OpRepeat || !anyChar && !class:
	case anyChar && re.Op == syntax.OpStar:
		return []string{string(wild)}
	case anyChar:
		return []string{string(plus)}
	case has(sub.Rune, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-.") && !has(sub.Rune, "/"):
		return []string{string(map[bool]rune{true: run, false: runPlus}[re.Op == syntax.OpStar])}
	case len(sub.Rune) == 2 && has(sub.Rune, "0123456789") && sub.Rune[1] == '9' && re.Op == syntax.OpPlus:
		return p.join(p.class(sub.Rune), []string{string(digits)})
	}
	p.loose = true
	if class && !has(sub.Rune, "/") {
		return []string{string(run)}
	}
	return []string{string(wild)}
}

// class returns the characters of a class, or a mark.
func (p *pattern) class(ranges []rune) (all []string) {
	if has(ranges, "0123456789ABCDEF") && !has(ranges, "/") {
		return []string{string(hexes)}
	}
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

// has reports whether a class has all characters of a text.
func has(ranges []rune, text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool {
		for i := 0; i < len(ranges); i += 2 {
			if ranges[i] <= c && c <= ranges[i+1] {
				return false
			}
		}
		return true
	})
}

// match reports whether a pattern can match a file of a kind, and whether it matches all of them.
func (p pattern) match(path string) (can, all bool) {
	if p.fold {
		path = strings.ToLower(path)
	}
	for _, g := range p.globs {
		if p.fold {
			g = strings.ToLower(g)
		}
		if (!can || !all && !p.loose) && glob(g, path, true) {
			can, all = true, all || !p.loose && glob(g, path, false)
		}
	}
	return can, all
}

// glob reports whether a glob matches a path. With loose, the characters of the glob may be a part
// of an unknown text of the path; without, the glob has to match whatever the text is.
func glob(g, path string, loose bool) bool {
	for i := 0; i < len(g) && i < len(path) && g[i] > lastMark && path[i] > lastMark; i++ {
		if g[i] != path[i] {
			return false
		}
	}
	for i, k := len(g)-1, len(path)-1; i >= 0 && k >= 0 && g[i] > lastMark && path[k] > lastMark; i, k = i-1, k-1 {
		if g[i] != path[k] {
			return false
		}
	}
	now, next := make([]bool, len(g)+1), make([]bool, len(g)+1)
	now[0] = true
	skip := func(set []bool) {
		for i := range g {
			if set[i] && (g[i] == wild || g[i] == run || g[i] == digits) {
				set[i+1] = true
			}
		}
	}
	skip(now)
	for k := range len(path) {
		clear(next)
		alive := false
		for i, on := range now {
			if alive = alive || on; on {
				step(g, i, path[k], loose, next)
			}
		}
		if !alive {
			return false
		}
		skip(next)
		now, next = next, now
	}
	return now[len(g)]
}

// step marks the places of a glob behind place i and one character of a path.
func step(g string, i int, c byte, loose bool, next []bool) {
	unknown := c == letter || c == name
	if unknown && loose {
		next[i] = true
		for j := i; j < len(g) && isIn(c, g[j]); j++ {
			next[j+1] = true
			next[j] = next[j] || g[j] != char && g[j] < lastMark+1
		}
	}
	if i == len(g) {
		return
	}
	stays := g[i] == wild || g[i] == plus || c != '/' && (g[i] == run || g[i] == runPlus) ||
		g[i] == digits && (c >= '0' && c <= '9' || loose && c != '/')
	next[i] = next[i] || stays
	goes := stays && (g[i] == plus || g[i] == runPlus) && !unknown
	switch {
	case g[i] == char:
		goes = goes || !unknown && (loose || c != other)
	case g[i] == hexes:
		goes = goes || c == hex || c == other || loose && c != '/' || isIn(hex, c)
	case g[i] > lastMark:
		goes = goes || g[i] == c || loose && (c == hex || c == one) && isIn(c, g[i])
	}
	next[i+1] = next[i+1] || goes
}

// isIn reports whether an unknown text of a kind can have a character of a glob.
func isIn(kind, c byte) bool {
	digit, lower, upper := c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z'
	switch {
	case c <= lastMark:
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

// shape returns the path of the files with marks for what differs between them.
func (c cell) shape(groupInURL bool) string {
	group, path, ext := "/"+c.group, c.path, c.ext
	switch {
	case !groupInURL:
		group = ""
	case c.group == otherGroup:
		group = "/" + string(letter) + string(other) + string(letter)
	}
	if c.path == otherPath {
		path = "M" + string(hex) + string(other)
	}
	if ext == "" {
		ext = string(other)
	}
	const folder = "/" + string(hex) + string(hex)
	return group + "/" + path + folder + folder + "/" + string(one) + string(name) + "." + ext
}

var (
	namedGroup = regexp.MustCompile(`^[\x02\x11]?/?([A-Za-z0-9]{1,16})[/\x01-\x11]`)
	namedPath  = regexp.MustCompile(`(?:^|[/\x01-\x11])(M[0-9A-F]{2})(?:[/\x01-\x11]|$)`)
	namedExt   = regexp.MustCompile(`[.\x01-\x11]([A-Za-z0-9_-]{1,6})\x02?$`)
	storePath  = regexp.MustCompile(`^M[0-9A-F]{2}$`)
)

// universe is the set of kinds of files that patterns and mod_fastdfs.conf name.
type universe struct {
	groups, paths []string // otherGroup and otherPath are last
	exts          []string // the empty one is first
	all           []cell
	shapes        map[cell]string
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
func (u *universe) finish(groupInURL bool) bool {
	u.shapes = map[cell]string{}
	slices.Sort(u.paths)
	u.groups, u.paths, u.exts = append(u.groups, otherGroup), append(u.paths, otherPath), append([]string{""},
		u.exts...)
	if len(u.groups)*len(u.paths)*len(u.exts) > maxCells {
		return false
	}
	for _, g := range u.groups {
		for _, p := range u.paths {
			for _, e := range u.exts {
				c := cell{g, p, e}
				u.all, u.shapes[c] = append(u.all, c), c.shape(groupInURL)
			}
		}
	}
	return true
}

// maxCells bounds the kinds of files.
const maxCells = 20_000
