package migrate

import (
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

// classesOf returns the classes of the paths that a language has; false if there are too many. The
// patterns and the language are automata, which read the same characters side by side: whatever two
// patterns have in common is found, without a sample in the right form.
func classesOf(language *syntax.Prog, patterns []*syntax.Prog) (classes []class, ok bool) {
	m := &automata{language: language, patterns: patterns}
	m.chooseCharacters()
	first := &state{inside: make([][]uint32, len(patterns)), matched: make([]bool, len(patterns)), before: -1,
		language: []uint32{uint32(language.Start)}}
	seen, ends := map[string]bool{first.key(): true}, map[string]bool{}
	for queue := []*state{first}; len(queue) > 0; queue = queue[1:] {
		if matched, accepted := m.end(queue[0]); accepted {
			if key := (&state{matched: matched}).key(); !ends[key] {
				ends[key] = true
				classes = append(classes, class{queue[0].text, matched})
			}
		}
		for _, c := range m.characters {
			next := m.step(queue[0], c)
			if len(next.language) == 0 {
				continue
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

// automata reads one text with several expressions.
type automata struct {
	language   *syntax.Prog // anchored at both ends
	patterns   []*syntax.Prog
	characters []rune // one of each kind that an instruction distinguishes
}

// state is the state of all expressions behind a text.
type state struct {
	text     string
	before   rune // a character of the same kind as the last one; -1 = none
	language []uint32
	inside   [][]uint32 // instructions of each pattern that wait for a character
	matched  []bool
}

func (s *state) key() string {
	b := []byte{byte(s.before)}
	for _, m := range s.matched {
		b = append(b, map[bool]byte{true: 1}[m])
	}
	for _, list := range append([][]uint32{s.language}, s.inside...) {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, pc := range list {
			b = binary.AppendUvarint(b, uint64(pc))
		}
	}
	return string(b)
}

// chooseCharacters takes one character of each kind: all instructions accept or reject those of a
// kind alike.
func (m *automata) chooseCharacters() {
	kinds := map[string]bool{}
	for _, c := range "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz/.-_" {
		kind := []byte{byte(kindOf(c))}
		for _, prog := range append([]*syntax.Prog{m.language}, m.patterns...) {
			for i := range prog.Inst {
				kind = append(kind, map[bool]byte{true: 1}[isRune(&prog.Inst[i]) && prog.Inst[i].MatchRune(c)])
			}
		}
		if !kinds[string(kind)] {
			kinds[string(kind)] = true
			m.characters = append(m.characters, c)
		}
	}
}

// kindOf returns a character that is a part of a word if c is one.
func kindOf(c rune) rune {
	if syntax.IsWordChar(c) {
		return 'a'
	}
	return '/'
}

func isRune(i *syntax.Inst) bool {
	switch i.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	}
	return false
}

// step is the state behind one more character.
func (m *automata) step(s *state, c rune) *state {
	flags := syntax.EmptyOpContext(s.before, c)
	next := &state{text: s.text + string(c), before: kindOf(c), inside: make([][]uint32, len(m.patterns)),
		matched: slices.Clone(s.matched)}
	if next.language, _ = advance(m.language, s.language, flags, c); len(next.language) == 0 {
		return next
	}
	for i, p := range m.patterns {
		if s.matched[i] {
			continue
		}
		from := m.waiting(s, i)
		if len(from) == 0 {
			continue
		}
		next.inside[i], next.matched[i] = advance(p, from, flags, c)
		if next.matched[i] {
			next.inside[i] = nil
		}
	}
	return next
}

// waiting returns the instructions of a pattern that wait for a character. It may begin anywhere,
// unless it is anchored.
func (m *automata) waiting(s *state, i int) []uint32 {
	p := m.patterns[i]
	if s.before >= 0 && p.StartCond()&syntax.EmptyBeginText != 0 {
		return s.inside[i]
	}
	return append([]uint32{uint32(p.Start)}, s.inside[i]...)
}

// end returns the patterns that match the text of a state, and whether the language has it.
func (m *automata) end(s *state) (matched []bool, accepted bool) {
	flags := syntax.EmptyOpContext(s.before, -1)
	if _, accepted = advance(m.language, s.language, flags, -1); !accepted {
		return nil, false
	}
	matched = slices.Clone(s.matched)
	for i, p := range m.patterns {
		if !matched[i] {
			_, matched[i] = advance(p, m.waiting(s, i), flags, -1)
		}
	}
	return matched, true
}

// advance follows instructions up to the next character, and over it. matched is true if the
// expression matches in front of the character.
func advance(p *syntax.Prog, from []uint32, flags syntax.EmptyOp, c rune) (next []uint32, matched bool) {
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
		case syntax.InstFail:
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
		p := program(e)
		if p == nil {
			p = program(`[^\x00-\x{10FFFF}]`)
		}
		all = append(all, p)
	}
	return all
}

// literal is an expression for paths that begin with a text; whole = that are the text.
func literal(text string, whole bool) string {
	if whole {
		return "^" + regexp.QuoteMeta(text) + "$"
	}
	return "^" + regexp.QuoteMeta(text)
}
