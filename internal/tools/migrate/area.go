package migrate

import (
	"regexp/syntax"
	"slices"
	"strings"
)

// area is the set of file ids that a pattern of nginx matches.
type area struct {
	none  bool     // the pattern matches no file id
	outer selector // contains all files that the pattern matches
	files selector // the files that a plain pattern is for
	plain bool     // the pattern is a group, a store path, an extension, or a combination of these
	opens bool     // plain, and the pattern matches all of these files
}

// isExact reports whether the pattern matches its files and no others.
func (a area) isExact() bool { return a.opens && a.outer.String() == a.files.String() }

// names are the names that paths of files have.
type names struct {
	grouped bool     // paths begin with the group
	groups  []string // groups that are known
}

var everything = area{plain: true, opens: true}

var (
	storePath   = lazy(`^M[0-9A-F]{2}$`)
	endsInDigit = lazy(`[g-zG-Z].*[0-9]$`)
	partPath    = lazy(`^/M[0-9A-F]?$`)
	headParts   = lazy(`^(?:((?:[0-9A-Za-z]{1,16}/)?M[0-9A-F]{2})|([0-9A-Za-z]{1,16}))((?:/.*)?)$`)
	folder      = lazy(`^[0-9A-Fa-f]{2}$`)
	anyCasePath = lazy(`(?i)/M[0-9A-F]{0,2}(/|$)`)
	extension   = lazy(`\.(\w{1,6})$`)
	// assertion matches the assertions of PCRE, which Go does not have; without them an expression
	// matches more paths.
	assertion = lazy(`\(\?(?:[=!]|<[=!])[^()]*\)`)
)

// maxExpression bounds the length of an expression that is read.
const maxExpression = 1000

// areaOf returns the area of a location, or of an expression on the path.
func areaOf(op, path string, t names) area {
	switch {
	case op == "@", op == "=" && strings.Count(path, "/") < 4: // no id of a file
		return area{none: true}
	case strings.HasPrefix(op, "~"):
		return areaOfExpression(path, op == "~*", t)
	}
	a := t.places([]string{path}, true)
	if op == "=" {
		a.plain, a.opens = false, false
	}
	return a
}

// places returns the area of paths that begin with one of the heads; not anchored, they contain
// one.
func (t names) places(heads []string, anchored bool) area {
	a := everything
	a.none = true
	wide := false
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
		a.none = false
		wide = wide || len(p.outer.places) == 0
		a.outer.places = union(a.outer.places, p.outer.places...)
		a.files.places = union(a.files.places, p.files.places...)
		a.plain, a.opens = a.plain && p.plain, a.opens && p.opens
	}
	if wide {
		a.outer.places = nil
	}
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
		p.outer = selector{}
		return p
	case path != "" && more != "" && more != "/":
		return area{outer: place}
	case path != "":
		return area{outer: place, files: place, plain: true, opens: true}
	case group == "": // no name of a group: at most a part of a folder or name
		return area{none: anchored || strings.Contains(rest, "/")}
	case !anchored && folder().MatchString(group):
		return area{}
	case more == "/":
		return area{outer: place, files: place, plain: true, opens: true}
	case partPath().MatchString(more):
		return area{outer: place}
	case more != "":
		return area{none: true}
	case slices.Contains(t.groups, group) || endsInDigit().MatchString(group): // the begin of group10, too
		return area{files: place, plain: true, opens: true}
	}
	return area{}
}

// areaOfExpression returns the area of an expression. A plain one has texts at its begin, .* or .+,
// and extensions at its end. The area of any other one is that of the texts with which it begins,
// and of the extensions with which it ends.
func areaOfExpression(text string, fold bool, t names) area {
	tree, err := syntax.Parse(text, syntax.Perl)
	plain := err == nil
	if !plain {
		tree, err = syntax.Parse(assertion().ReplaceAllString(text, ""), syntax.Perl)
	}
	if err != nil || len(text) > maxExpression {
		return area{}
	}
	parts := partsOf(tree)
	for _, p := range parts {
		if p.Op == syntax.OpLiteral && strings.Contains(string(p.Rune), "/.") {
			return area{none: true} // no name of a file begins with a dot
		}
	}
	anchored, ends := parts[0].Op == syntax.OpBeginText, parts[len(parts)-1].Op == syntax.OpEndText
	if anchored {
		parts = parts[1:]
	}
	if ends {
		parts = parts[:len(parts)-1]
	}
	heads, begin := textsOf(parts...), len(parts)
	for ; heads == nil; heads = textsOf(parts[:begin]...) {
		begin--
	}
	end, exts, only := len(parts), []string(nil), false
	if ends {
		exts, only, end = extensionsOf(parts)
	}
	switch {
	case begin < len(parts):
		plain = plain && isAnything(parts[begin]) && end == begin+1 && (end == len(parts) || only)
	case only && !anchored:
		heads = []string{""}
	default:
		plain = plain && !ends
	}
	if fold {
		for i, h := range heads {
			heads[i] = anyCasePath().ReplaceAllStringFunc(h, strings.ToUpper)
		}
	}
	a := t.places(heads, anchored)
	if fold { // a group is not the same in another letter case
		a.outer.places = nil
		for _, p := range slices.Clone(a.files.places) {
			if group, path, _ := strings.Cut(p, "/"); !storePath().MatchString(group) {
				a.files.places = union(a.files.places, strings.ToLower(group)+"/"+path)
			}
		}
	}
	a.outer.exts, a.files.exts = exts, exts
	a.plain = a.plain && plain
	a.opens = a.opens && a.plain && (fold || len(exts) == 0) // else .JPG is not matched, but selected
	return a
}

// isAnything reports whether a part is .* or .+.
func isAnything(p *syntax.Regexp) bool {
	return (p.Op == syntax.OpStar || p.Op == syntax.OpPlus) &&
		(p.Sub[0].Op == syntax.OpAnyChar || p.Sub[0].Op == syntax.OpAnyCharNotNL)
}

// extensionsOf returns the extensions with which the last parts of an expression end, if each of
// their texts has one, and the index of the first of these parts. only reports whether the texts
// have nothing else.
func extensionsOf(parts []*syntax.Regexp) (exts []string, only bool, begin int) {
	tails := textsOf(parts...)
	for ; tails == nil; tails = textsOf(parts[begin:]...) {
		begin++
	}
	only = true
	for _, tail := range tails {
		m := extension().FindStringSubmatch(tail)
		if m == nil {
			return nil, false, begin
		}
		exts, only = union(exts, strings.ToLower(m[1])), only && m[0] == tail
	}
	return exts, only, begin
}

// partsOf returns the parts of an expression that match one after the other.
func partsOf(re *syntax.Regexp) (all []*syntax.Regexp) {
	if re.Op != syntax.OpConcat && re.Op != syntax.OpCapture {
		return []*syntax.Regexp{re}
	}
	for _, sub := range re.Sub {
		all = append(all, partsOf(sub)...)
	}
	return all
}

// maxTexts bounds the texts of one expression; a selector has at most 256 words.
const maxTexts = 200

// textsOf returns the texts that expressions match one after the other; nil if they are too many,
// or no list.
func textsOf(parts ...*syntax.Regexp) []string {
	all := []string{""}
	for _, part := range parts {
		var one, longer []string
		switch part.Op {
		case syntax.OpLiteral:
			if part.Flags&syntax.FoldCase == 0 {
				one = []string{string(part.Rune)}
			}
		case syntax.OpCharClass:
			for i := 0; i < len(part.Rune); i += 2 {
				for c := part.Rune[i]; c <= part.Rune[i+1] && len(one) <= maxTexts; c++ {
					one = append(one, string(c))
				}
			}
		case syntax.OpEmptyMatch:
			one = []string{""}
		case syntax.OpCapture, syntax.OpConcat:
			one = textsOf(part.Sub...)
		case syntax.OpQuest:
			if one = textsOf(part.Sub...); one != nil {
				one = append(one, "")
			}
		case syntax.OpAlternate:
			for _, sub := range part.Sub {
				texts := textsOf(sub)
				if one = append(one, texts...); texts == nil {
					return nil
				}
			}
		}
		if len(all)*len(one) > maxTexts {
			return nil
		}
		for _, a := range all {
			for _, b := range one {
				longer = append(longer, a+b)
			}
		}
		if all = longer; all == nil {
			return nil
		}
	}
	return all
}
