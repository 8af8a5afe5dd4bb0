package migrate

import (
	"regexp/syntax"
	"slices"
	"strings"
)

// kind is a kind of files: those of a group, a store path and an extension in lower case. An empty
// word is for all names that the configuration does not name.
type kind struct{ group, path, ext string }

// match is the part of the files of a kind that a pattern matches.
type match int

const (
	none  match = iota
	rare        // at most those with an unusual name
	some        // some of them, perhaps
	usual       // all but those with an extension in another letter case
	all
)

// pattern holds the parts of the path of a location, or of an expression on the path, that decide
// about kinds of files.
type pattern struct {
	heads    []string // the paths begin with one of them; not anchored, they contain one
	anchored bool
	fold     bool     // letter case is ignored
	exts     []string // of the paths; nil = any
	part     bool     // more than this decides, so at most some files are matched
	known    map[kind]match
}

var (
	storePath = lazy(`^M[0-9A-F]{2}$`)
	partPath  = lazy(`^M?[0-9A-F]?$`)
	folder    = lazy(`^[0-9A-Fa-f]{0,2}$`)
	word      = lazy(`^[0-9A-Za-z]{1,16}$`)
	extension = lazy(`\.\w{1,6}$`)
	// assertion matches the assertions of PCRE, which Go does not have; without them an expression
	// matches more paths.
	assertion = lazy(`\(\?(?:[=!]|<[=!])[^()]*\)`)
)

// maxExpression bounds the length of an expression that is read.
const maxExpression = 1000

// patternOf reads the pattern of a location. A plain expression has a list of texts at its begin,
// .* or .+, and a list of extensions at its end; any other one matches at most what these say.
func patternOf(op, path string) (p pattern) {
	p = pattern{anchored: true, known: map[kind]match{}}
	switch {
	case op == "@", op == "=" && strings.Count(path, "/") < 4: // no id of a file
		return p
	case !strings.HasPrefix(op, "~"):
		p.heads, p.part = []string{path}, op == "="
		return p
	}
	p.fold = op == "~*"
	tree, err := syntax.Parse(path, syntax.Perl)
	if err != nil {
		p.part = true
		tree, err = syntax.Parse(assertion().ReplaceAllString(path, ""), syntax.Perl)
	}
	if err != nil || len(path) > maxExpression {
		p.heads, p.part = []string{""}, true
		return p
	}
	p.read(partsOf(tree))
	return p
}

// read reads the parts of an expression.
func (p *pattern) read(parts []*syntax.Regexp) {
	if p.anchored = parts[0].Op == syntax.OpBeginText; p.anchored {
		parts = parts[1:]
	}
	ends := len(parts) > 0 && parts[len(parts)-1].Op == syntax.OpEndText
	if ends {
		parts = parts[:len(parts)-1]
	}
	n := len(parts)
	for p.heads = textsOf(parts...); p.heads == nil; p.heads = textsOf(parts[:n]...) {
		n--
	}
	tail, begin := p.heads, n
	if n < len(parts) {
		for begin, tail = n+1, nil; tail == nil; begin++ {
			tail = textsOf(parts[begin:]...)
		}
		begin--
		p.part = p.part || begin > n+1 || !isAnything(parts[n]) || !ends && begin < len(parts)
	} else {
		p.part = p.part || ends && p.anchored
	}
	for _, text := range tail {
		e := extension().FindString(text)
		if e == "" || !ends {
			p.part, p.exts = p.part || ends && text != "", nil
			return
		}
		p.exts, p.part = append(p.exts, e[1:]), p.part || e != text
	}
	if n == len(parts) && !p.anchored {
		p.heads = []string{""}
	}
}

// isAnything reports whether a part is .* or .+.
func isAnything(p *syntax.Regexp) bool {
	return (p.Op == syntax.OpStar || p.Op == syntax.OpPlus) &&
		(p.Sub[0].Op == syntax.OpAnyChar || p.Sub[0].Op == syntax.OpAnyCharNotNL)
}

// partsOf returns the parts of an expression that match one after the other.
func partsOf(re *syntax.Regexp) (parts []*syntax.Regexp) {
	if re.Op != syntax.OpConcat && re.Op != syntax.OpCapture {
		return []*syntax.Regexp{re}
	}
	for _, sub := range re.Sub {
		parts = append(parts, partsOf(sub)...)
	}
	return parts
}

// maxTexts bounds the texts of one expression; a selector has at most 256 words.
const maxTexts = 200

// textsOf returns the texts that expressions match one after the other; nil if they are too many,
// or no list.
func textsOf(parts ...*syntax.Regexp) []string {
	texts := []string{""}
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
				list := textsOf(sub)
				if one = append(one, list...); list == nil {
					return nil
				}
			}
		}
		if len(texts)*len(one) > maxTexts {
			return nil
		}
		for _, a := range texts {
			for _, b := range one {
				longer = append(longer, a+b)
			}
		}
		if texts = longer; texts == nil {
			return nil
		}
	}
	return texts
}

// match compares the pattern with a kind of files.
func (p *pattern) match(k kind, grouped bool) match {
	ext := none
	isEqual := func(e string) bool { return strings.EqualFold(e, k.ext) }
	switch {
	case p.exts == nil, p.fold && slices.ContainsFunc(p.exts, isEqual):
		ext = all
	case slices.Contains(p.exts, k.ext):
		ext = usual
	case slices.ContainsFunc(p.exts, isEqual):
		ext = rare
	}
	if p.part {
		ext = min(ext, some)
	}
	k.ext = ""
	m, ok := p.known[k]
	if !ok {
		words := []string{k.group, k.path}
		if !grouped {
			words = words[1:]
		}
		for _, head := range p.heads {
			m = max(m, p.compare(strings.Split(head, "/"), words))
		}
		p.known[k] = m
	}
	return min(m, ext)
}

// compare compares a head, split at its slashes, with the first names of a path. Two folders of two
// digits and the name of the file are behind them.
func (p *pattern) compare(head, words []string) (m match) {
	isRooted := head[0] == "" && len(head) > 1
	switch {
	case len(head) == 1 && head[0] == "":
		return all
	case p.anchored && isRooted:
		return p.at(head[1:], words, false)
	case p.anchored:
		return none
	}
	for i := range words {
		if isRooted {
			m = max(m, p.at(head[1:], words[i:], false))
		} else {
			m = max(m, p.at(head, words[i:], true))
		}
	}
	if isRooted {
		head = head[1:]
	}
	return max(m, p.at(head, nil, !isRooted))
}

// at compares a head with the names of a path at one place. Its last name may be the begin of a
// longer one, and with inside its first name the end of one.
func (p *pattern) at(head, words []string, inside bool) match {
	m := all
	for i, name := range head {
		last, end := i == len(head)-1, inside && i == 0
		given := ""
		if i < len(words) {
			given = words[i]
		}
		if p.fold {
			name, given = strings.ToLower(name), strings.ToLower(given)
		}
		isPath := i == len(words)-1
		switch {
		case last && name == "":
		case i >= len(words): // a folder, or the name of the file
			if !last && !folder().MatchString(name) || name[:min(len(name), 1)] == "." && !end {
				return none
			}
			m = min(m, some)
		case given == "" && !end && (isPath && !partPath().MatchString(strings.ToUpper(name)) ||
			!word().MatchString(name)):
			return none
		case given == "" && (p.fold && !isPath || last && !end && endsInDigit().MatchString(name)):
			m = min(m, rare) // also group10 for group1
		case given == "" && (last || end):
			m = min(m, some)
		case given == "" || !fits(given, name, end, last):
			return none
		}
	}
	return m
}

// fits reports whether a name is the given one, or a part of it that is open at its begin or end.
func fits(given, name string, begins, ends bool) bool {
	switch {
	case begins && ends:
		return strings.Contains(given, name)
	case begins:
		return strings.HasSuffix(given, name)
	case ends:
		return strings.HasPrefix(given, name)
	}
	return given == name
}
