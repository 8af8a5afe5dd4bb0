package config

import (
	"strings"

	"fastdfs-gateway/internal/i18n"
)

// maxListBytes bounds mime.types and the storage ids.
const maxListBytes = 4 << 20

// badLine is an invalid line of a list.
type badLine struct {
	line int
	text i18n.Text
}

// mimeParser reads lists of media types in two forms, which may be mixed:
//
//	type ext ext ...             one type a line, # begins a comment
//
//	types {                      as nginx writes it: statements end with ;
//	    type ext ext ...;        and may go over several lines
//	}
type mimeParser struct {
	types map[string]string
	bad   []badLine
	block bool     // inside types { }
	words []string // of the statement being read
	line  int      // first line of the statement
}

// parseTypes returns the media type of each extension (lower case, without dot), and the invalid
// lines. An extension that is listed twice has the last of its types.
func parseTypes(data string) (map[string]string, []badLine) {
	m := &mimeParser{types: map[string]string{}}
	data = strings.TrimPrefix(data, "\xef\xbb\xbf")
	n := 0
	for line := range strings.Lines(data) {
		n++
		line, _, _ = strings.Cut(line, "#")
		m.read(strings.Trim(line, blanks+"\n"), n)
		if !m.block {
			m.endStatement()
		}
	}
	if m.block {
		m.fail(n, "the block types { is not closed with }")
	}
	return m.types, m.bad
}

// read processes the words and marks of one line.
func (m *mimeParser) read(line string, n int) {
	for line != "" {
		marks := "{}"
		if m.block {
			marks = "{};" // in the plain form a ; may be part of a type
		}
		i := strings.IndexAny(line, blanks+marks)
		if i < 0 {
			i = len(line)
		}
		if i > 0 {
			m.word(line[:i], n)
			line = line[i:]
			continue
		}
		switch line[0] {
		case '{':
			m.openBlock(n)
		case '}':
			m.closeBlock(n)
		case ';':
			m.endStatement()
		}
		line = line[1:]
	}
}

func (m *mimeParser) word(w string, n int) {
	if len(m.words) == 0 {
		m.line = n
	}
	m.words = append(m.words, w)
}

func (m *mimeParser) openBlock(n int) {
	if m.block || len(m.words) != 1 || m.words[0] != "types" {
		m.fail(n, "{ stands only behind the word types")
	}
	m.words, m.block = m.words[:0], true
}

func (m *mimeParser) closeBlock(n int) {
	if !m.block {
		m.fail(n, "} closes nothing")
	}
	if len(m.words) > 0 {
		m.fail(m.line, "a statement in types { } has no ; at its end")
	}
	m.words, m.block = m.words[:0], false
}

// endStatement processes the statement in words.
func (m *mimeParser) endStatement() {
	words := m.words
	m.words = m.words[:0]
	// `types` alone waits for the { of the next line.
	if len(words) == 0 || len(words) == 1 && words[0] == "types" && !m.block {
		m.words = words
		return
	}
	if words[0] == "types" && !m.block { // the { is missing
		m.fail(m.line, "types is not followed by {")
		return
	}
	if !isMediaType(strings.TrimSuffix(words[0], ";")) {
		m.fail(m.line, "a line does not begin with a media type such as image/jpeg")
		return
	}
	for _, ext := range words[1:] {
		// A line copied out of an nginx file ends with a semicolon.
		ext = strings.ToLower(strings.TrimPrefix(strings.TrimSuffix(ext, ";"), "."))
		if ext != "" {
			m.types[ext] = words[0]
		}
	}
}

func (m *mimeParser) fail(line int, text string) {
	m.bad = append(m.bad, badLine{line, i18n.Plain(text)})
}
