package config

import (
	"regexp"
	"slices"
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

// parseTypes returns the media type of each extension (lower case, without dot), and the invalid
// lines. An extension that is listed twice has the last of its types. A list has two forms, which
// may be mixed:
//
//	type ext ext ...             one type a line, # begins a comment
//
//	types {                      as nginx writes it: statements end with ;
//	    type ext ext ...;        and may go over several lines
//	}
func parseTypes(data string) (types map[string]string, bad []badLine) {
	types = map[string]string{}
	rest, block := comments.ReplaceAllString(strings.TrimPrefix(data, byteOrderMark)+"\n", ""), false
	for line := 1; rest != ""; {
		marks := "\n{}"
		if block {
			marks = ";{}"
		}
		text, mark := rest, byte(0) // 0 = the end of the list
		if i := strings.IndexAny(rest, marks); i >= 0 {
			text, mark = rest[:i], rest[i]
		}
		rest = rest[min(len(text)+1, len(rest)):]
		words, fault := strings.Fields(text), i18n.Text{}
		isTypes := slices.Equal(words, []string{"types"})
		switch {
		case mark == '\n' && isTypes && strings.HasPrefix(strings.TrimSpace(rest), "{"):
			rest = text + rest
		case mark == '{' && (block || !isTypes):
			fault = i18n.Plain("{ stands only behind the word types")
		case mark == '}' && !block:
			fault = i18n.Plain("} closes nothing")
		case mark == '}' && len(words) > 0:
			fault = i18n.Plain("a statement in types { } has no ; at its end")
		case mark == 0 && block:
			fault = i18n.Plain("the block types { is not closed with }")
		case mark != '{' && len(words) > 0:
			fault = addTypes(types, words)
		}
		if !fault.IsZero() {
			if len(words) > 0 {
				line += strings.Count(text[:strings.Index(text, words[0])], "\n")
				text = text[strings.Index(text, words[0]):]
			}
			bad = append(bad, badLine{line, fault})
		}
		line += strings.Count(text+string(mark), "\n")
		block = mark == '{' || block && mark != '}'
	}
	return types, bad
}

var comments = regexp.MustCompile(`#.*`)

// addTypes adds the extensions of a statement, and returns its fault.
func addTypes(types map[string]string, words []string) (fault i18n.Text) {
	if !isMediaType(strings.TrimSuffix(words[0], ";")) {
		return i18n.Plain("a line does not begin with a media type such as image/jpeg")
	}
	for _, ext := range words[1:] {
		// A line copied out of an nginx file ends with a semicolon.
		if ext = strings.ToLower(strings.TrimPrefix(strings.TrimSuffix(ext, ";"), ".")); ext != "" {
			types[ext] = words[0]
		}
	}
	return fault
}
