package migrate

import (
	"regexp/syntax"
	"slices"
	"strings"
)

// selector is a set of files, as the words of [access] and [headers] select them: those in one of
// the places with one of the extensions. The zero value selects all files.
type selector struct {
	places []string // group1/, group1/M00/, or M00/ of every group
	exts   []string // lower case
}

// String returns the words, each with a blank in front.
func (s selector) String() (text string) {
	for _, w := range slices.Concat(s.places, s.exts) {
		text += " " + w
	}
	return text
}

func (s selector) all() bool { return len(s.places)+len(s.exts) == 0 }

// anyPair reports whether is holds for a pair of elements of two lists.
func anyPair(a, b []string, is func(a, b string) bool) bool {
	return slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return is(x, y) })
	})
}

// covers reports whether s has all files of another selector.
func (s selector) covers(o selector) bool {
	isIn := func(p string) bool {
		return slices.ContainsFunc(s.places, func(q string) bool {
			group, path := splitPlace(q)
			pg, pp := splitPlace(p)
			return (group == "" || group == pg) && (path == "" || path == pp)
		})
	}
	return (len(s.exts) == 0 || len(o.exts) > 0 &&
		len(without(o.exts, func(e string) bool { return slices.Contains(s.exts, e) })) == 0) &&
		(len(s.places) == 0 || len(o.places) > 0 && len(without(o.places, isIn)) == 0)
}

// meets reports whether two selectors may have files in common.
func (s selector) meets(o selector) bool {
	placesMeet := func(p, q string) bool {
		pg, pp := splitPlace(p)
		qg, qp := splitPlace(q)
		return (pg == "" || qg == "" || pg == qg) && (pp == "" || qp == "" || pp == qp)
	}
	return (len(s.exts)*len(o.exts) == 0 || anyPair(s.exts, o.exts, func(a, b string) bool { return a == b })) &&
		(len(s.places)*len(o.places) == 0 || anyPair(s.places, o.places, placesMeet))
}

// splitPlace returns the group and the store path of a place; empty = any.
func splitPlace(place string) (group, path string) {
	group, path, _ = strings.Cut(strings.TrimSuffix(place, "/"), "/")
	if storePath().MatchString(group) {
		return "", group
	}
	return group, path
}

// area is the set of file ids that a pattern of nginx matches.
type area struct {
	none  bool     // the pattern matches no file id
	outer selector // contains all files that the pattern matches
	files selector // the files that a plain pattern is for
	plain bool     // the pattern is a group, a store path, an extension, or a combination of these
	opens bool     // plain, and the pattern matches all of these files
	exact bool     // opens, and the pattern matches no other files
}

// names are the names that paths of files have.
type names struct {
	grouped bool     // paths begin with the group
	groups  []string // groups that are known
}

var everything = area{plain: true, opens: true, exact: true}

var (
	storePath   = lazy(`^M[0-9A-F]{2}$`)
	endsInDigit = lazy(`[g-zG-Z].*[0-9]$`)
	partPath    = lazy(`^/M[0-9A-F]?$`)
	headParts   = lazy(`^(?:((?:[0-9A-Za-z]{1,16}/)?M[0-9A-F]{2})|([0-9A-Za-z]{1,16}))((?:/.*)?)$`)
	folder      = lazy(`^[0-9A-Fa-f]{2}$`)
	anyCasePath = lazy(`(?i)/M[0-9A-F]{0,2}(/|$)`)
	fileID      = lazy(`(?i)^/([0-9a-z]+/)?M[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{2}/[^/]+$`)
	// plainExpression has the anchor, the beginning, .* or .+, the extensions and the end.
	plainExpression = lazy(`^(\^?)((?:[\w/|()?:-]|\[[\w-]+\]|\\d)*?)(\(?\.[*+]\)?|)` +
		`(\\\.(?:\w{1,6}|\((?:\?:)?[\w|?]+\))|)\)?(\$?)$`)
	begin    = lazy(`^(\^?)([\w/-]*)([?*+{]?)`)
	groupTag = lazy(`\(\?(?:P?<\w+>|'\w+')`)
	suffix   = lazy(`(\\\.(?:\w{1,6}|\((?:\?:)?[\w|?]+\)))\$$`)
	inside   = lazy(`\\[|()]|\[[^\]]*\]|\((?:[^()\\]|\\[^()])*\)`)
	dotName  = lazy(`/\\\.(?:[\w(]|$)`)
	// assertion matches the assertions of PCRE, which Go does not have; without them an expression
	// matches more paths.
	assertion = lazy(`\(\?(?:[=!]|<[=!])[^()]*\)`)
)

// areaOf returns the area of a location, or of an expression on the path.
func areaOf(op, path string, t names) area {
	switch op {
	case "@":
		return area{none: true}
	case "=":
		if !fileID().MatchString(path) {
			return area{none: true}
		}
		a := places([]string{path}, true, t)
		a.plain, a.opens, a.exact = false, false, false
		return a
	case "", "^~":
		return places([]string{path}, true, t)
	}
	return areaOfExpression(path, op == "~*", t)
}

// places returns the area of paths that begin with one of the heads; not anchored, they contain
// one.
func places(heads []string, anchored bool, t names) area {
	a := everything
	known, wide := false, false
	for _, h := range heads {
		p := t.placeOf(h, anchored)
		if p.none {
			continue
		}
		if len(p.files.places) > 0 {
			group, _ := splitPlace(p.files.places[0])
			if group == "" && anchored && t.grouped || group != "" && !t.grouped { // no file has such a path
				p = area{outer: p.outer}
			}
		}
		known = true
		wide = wide || len(p.outer.places) == 0
		a.outer.places = union(a.outer.places, p.outer.places...)
		a.files.places = union(a.files.places, p.files.places...)
		a.plain, a.opens, a.exact = a.plain && p.plain, a.opens && p.opens, a.exact && p.exact
	}
	if wide {
		a.outer.places = nil
	}
	a.none = !known
	return a
}

// placeOf returns the area of one head. A head that ends within a name is a part of a longer one.
func (t names) placeOf(head string, anchored bool) area {
	rest, rooted := strings.CutPrefix(head, "/")
	m := append(headParts().FindStringSubmatch(rest), "", "", "", "")
	path, group, more := m[1], m[2], m[3]
	place := selector{places: []string{path + group + "/"}}
	switch {
	case head == "" || head == "/":
		return everything
	case !rooted && anchored:
		return area{none: true}
	case !rooted: // also for longer names
		p := t.placeOf("/"+head, false)
		return area{none: p.none, files: p.files, plain: p.plain, opens: p.opens}
	case path != "" && (more == "" || more == "/"):
		return area{outer: place, files: place, plain: true, opens: true, exact: true}
	case path != "":
		return area{outer: place}
	case group == "": // no name of a group: at most a part of a folder or name
		return area{none: anchored || strings.Contains(rest, "/")}
	case !anchored && folder().MatchString(group):
		return area{}
	case more == "/":
		return area{outer: place, files: place, plain: true, opens: true, exact: true}
	case partPath().MatchString(more):
		return area{outer: place}
	case more != "":
		return area{none: true}
	case slices.Contains(t.groups, group) || endsInDigit().MatchString(group): // the begin of group10, too
		return area{files: place, plain: true, opens: true}
	}
	return area{}
}

// areaOfExpression returns the area of an expression. If it is not plain, the area is that of the
// text with which it begins, and of the extensions with which it ends.
func areaOfExpression(text string, fold bool, t names) area {
	text = groupTag().ReplaceAllString(text, "(")
	_, err := syntax.Parse(text, syntax.Perl)
	readable := err == nil
	if !readable {
		text = assertion().ReplaceAllString(text, "")
		_, err = syntax.Parse(text, syntax.Perl)
	}
	outside := text // of brackets
	for inside().MatchString(outside) {
		outside = inside().ReplaceAllString(outside, "")
	}
	if err != nil || strings.Contains(outside, "|") {
		return area{}
	}
	if dotName().MatchString(outside) {
		return area{none: true} // no name of a file begins with a dot
	}
	m := plainExpression().FindStringSubmatch(text)
	plain := readable && m != nil && (m[3] != "" || m[4] == "" && m[5] == "" || m[1]+m[2] == "" && m[5] != "") &&
		(m[4] == "" || m[5] != "")
	var heads, exts []string
	if plain {
		if heads = textsIn(m[2]); m[4] != "" {
			exts = textsIn(m[4])
		}
		plain = heads != nil && (exts != nil || m[4] == "")
	}
	if !plain {
		m = begin().FindStringSubmatch(text)
		heads = []string{m[2]}
		if m[3] != "" { // the last character may be missing
			heads[0] = heads[0][:max(len(heads[0])-1, 0)]
		}
		if end := suffix().FindStringSubmatch(text); end != nil {
			exts = textsIn(end[1])
		}
	}
	if fold {
		for i, h := range heads {
			heads[i] = anyCasePath().ReplaceAllStringFunc(h, strings.ToUpper)
		}
	}
	a := places(heads, m[1] != "", t)
	for _, e := range exts {
		a.outer.exts = union(a.outer.exts, strings.ToLower(strings.TrimPrefix(e, ".")))
	}
	if fold {
		a.foldCase()
	}
	a.files.exts = a.outer.exts
	a.plain = a.plain && plain
	a.opens = a.opens && a.plain && (fold || len(exts) == 0) // else .JPG is not matched, but selected
	a.exact = a.exact && a.opens
	return a
}

// foldCase makes an area that of any letter case. A group is not the same in another letter case.
func (a *area) foldCase() {
	a.exact = a.exact && len(a.outer.places) == 0
	a.outer.places = nil
	for _, p := range slices.Clone(a.files.places) {
		if group, path, _ := strings.Cut(p, "/"); !storePath().MatchString(group) {
			a.files.places = union(a.files.places, strings.ToLower(group)+"/"+path)
		}
	}
}

// textsIn returns the texts that an expression matches; nil if they are too many, or no list.
func textsIn(text string) []string {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil
	}
	return textsOf(tree)
}

// maxTexts bounds the texts of one expression; a selector has at most 256 words.
const maxTexts = 200

func textsOf(re *syntax.Regexp) (all []string) {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			all = []string{string(re.Rune)}
		}
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			for c := re.Rune[i]; c <= re.Rune[i+1] && len(all) <= maxTexts; c++ {
				all = append(all, string(c))
			}
		}
	case syntax.OpEmptyMatch:
		all = []string{""}
	case syntax.OpQuest, syntax.OpAlternate:
		for _, sub := range re.Sub {
			one := textsOf(sub)
			if one == nil {
				return nil
			}
			all = append(all, one...)
		}
		if re.Op == syntax.OpQuest {
			all = append(all, "")
		}
	case syntax.OpCapture, syntax.OpConcat:
		all = []string{""}
		for _, sub := range re.Sub {
			var longer []string
			for _, a := range all {
				for _, b := range textsOf(sub) {
					longer = append(longer, a+b)
				}
			}
			if all = longer; len(all) > maxTexts {
				return nil
			}
		}
	}
	if len(all) > maxTexts {
		return nil
	}
	return all
}
