package migrate

import (
	"cmp"
	"encoding/binary"
	"regexp"
	"regexp/syntax"
	"slices"
)

// Bounds of the search for paths of file ids.
const (
	maxStates  = 20_000
	maxClasses = 4_000
)

// class is the set of the paths of file ids that match the same patterns.
type class struct {
	path    string // the shortest one
	matches []bool // of each pattern
}

// classesOf returns the classes of the paths of a language; ok is false if there are too many. The
// language, which is anchored at both ends, and the patterns are automata that read the same
// characters in parallel. So every path that two patterns have in common is found, without a sample
// in the right form.
func classesOf(language *syntax.Prog, patterns []*syntax.Prog) (classes []class, ok bool) {
	m := automata(append([]*syntax.Prog{language}, patterns...))
	characters := m.characters()
	seen, ends := map[string]bool{}, map[string]bool{}
	first := &state{before: -1, inside: make([][]uint32, len(m)), matched: make([]bool, len(m))}
	for queue := []*state{first}; len(queue) > 0; queue = queue[1:] {
		if end := m.step(queue[0], -1); end.matched[0] && !ends[end.key()] {
			ends[end.key()] = true
			classes = append(classes, class{queue[0].text, end.matched[1:]})
		}
		for _, c := range characters {
			next := m.step(queue[0], c)
			if len(next.inside[0]) == 0 {
				continue // the language has no such text
			}
			if key := next.key(); !seen[key] {
				seen[key] = true
				queue = append(queue, next)
			}
		}
		if len(seen) > maxStates || len(classes) > maxClasses {
			return nil, false
		}
	}
	return classes, true
}

// automata are the language and the patterns.
type automata []*syntax.Prog

// state is the state of all automata after a text.
type state struct {
	text    string
	before  rune       // a character of the same kind as the last one; -1 = none
	inside  [][]uint32 // instructions of each automaton that wait for a character
	matched []bool
}

func (s *state) key() string {
	b := []byte{byte(s.before)}
	for i, list := range s.inside {
		b = append(b, map[bool]byte{true: 1}[s.matched[i]])
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, pc := range list {
			b = binary.AppendUvarint(b, uint64(pc))
		}
	}
	return string(b)
}

// characters returns one character of each kind: all instructions accept or reject the characters
// of a kind alike.
func (m automata) characters() (all []rune) {
	kinds := map[string]bool{}
	for _, c := range "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz/.-_" {
		kind := []byte{byte(kindOf(c))}
		for _, p := range m {
			for i := range p.Inst {
				kind = append(kind, map[bool]byte{true: 1}[p.Inst[i].MatchRune(c)])
			}
		}
		if !kinds[string(kind)] {
			kinds[string(kind)] = true
			all = append(all, c)
		}
	}
	return all
}

// kindOf returns one character for all that are a part of a word, and one for all others.
func kindOf(c rune) rune {
	if syntax.IsWordChar(c) {
		return 'a'
	}
	return '/'
}

// step returns the state after one more character; -1 is the end of the text. A pattern may begin
// anywhere, unless it is anchored. A pattern that has matched is not followed further.
func (m automata) step(s *state, c rune) *state {
	flags := syntax.EmptyOpContext(s.before, c)
	next := &state{text: s.text, before: kindOf(c), inside: make([][]uint32, len(m)), matched: slices.Clone(s.matched)}
	if c >= 0 {
		next.text += string(c)
	}
	for i, p := range m {
		if s.matched[i] || i > 0 && c >= 0 && len(next.inside[0]) == 0 {
			continue
		}
		from := s.inside[i]
		if s.before < 0 || p.StartCond()&syntax.EmptyBeginText == 0 {
			from = append([]uint32{uint32(p.Start)}, from...)
		}
		if next.inside[i], next.matched[i] = advance(p, from, flags, c); next.matched[i] {
			next.inside[i] = nil
		}
	}
	return next
}

// advance follows instructions up to the next character, and over it. matched is true if the
// expression matches in front of the character.
func advance(p *syntax.Prog, from []uint32, flags syntax.EmptyOp, c rune) (next []uint32, matched bool) {
	if len(from) == 0 {
		return nil, false
	}
	seen := make([]bool, len(p.Inst))
	for stack := slices.Clone(from); len(stack) > 0; {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		switch i := &p.Inst[pc]; i.Op {
		case syntax.InstMatch:
			matched = true
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, i.Out, i.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, i.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(i.Arg)&^flags == 0 {
				stack = append(stack, i.Out)
			}
		default:
			if c >= 0 && i.MatchRune(c) && !slices.Contains(next, i.Out) {
				next = append(next, i.Out)
			}
		}
	}
	slices.Sort(next)
	return next, matched
}

// program compiles an expression; nil if it cannot be read.
func program(expression string) *syntax.Prog {
	re, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil
	}
	p, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil
	}
	return p
}

// programs compiles expressions; those that cannot be read match nothing.
func programs(expressions []string) (all []*syntax.Prog) {
	for _, e := range expressions {
		all = append(all, cmp.Or(program(e), program(`[^\x00-\x{10FFFF}]`)))
	}
	return all
}

// literal returns an expression for paths that begin with a text or, with whole, are the text.
func literal(text string, whole bool) string {
	if whole {
		return "^" + regexp.QuoteMeta(text) + "$"
	}
	return "^" + regexp.QuoteMeta(text)
}
