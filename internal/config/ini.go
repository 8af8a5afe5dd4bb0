package config

import (
	"fmt"
	"strconv"
	"strings"

	"gopkg.in/ini.v1"
)

// The text handed to the INI parser. The parser would unquote names and values
// that begin with a quote or backquote, trim Unicode blanks, treat `-` as a
// counter, drop empty repeated values and take [DEFAULT] for the global
// section. Framing every name and value takes these meanings away, and the
// number in front of a value leads back to its line:
//
//	[g]                 the global section
//	[sNAME]             the section NAME
//	kKEY|=N:VALUE|      entry N, its line is origins[N]
//
// KEY holds no `=` and none of the parts holds a line feed.

// enter makes name the current section.
func (p *preparer) enter(name string) {
	p.section = name
	if name == "" {
		p.out.WriteString("[g]\n")
		return
	}
	fmt.Fprintf(&p.out, "[s%s]\n", name)
}

// write adds one entry to the current section.
func (p *preparer) write(key, value string, at position) {
	fmt.Fprintf(&p.out, "k%s|=%d:%s|\n", key, len(p.origins), value)
	p.origins = append(p.origins, at)
}

// parse gives the entries in the order in which they were written.
func (p *preparer) parse() []entry {
	file, err := ini.LoadSources(ini.LoadOptions{
		IgnoreContinuation:         true,
		IgnoreInlineComment:        true,
		PreserveSurroundedQuote:    true,
		AllowShadows:               true,
		AllowDuplicateShadowValues: true,
		KeyValueDelimiters:         "=",
	}, p.out.Bytes())
	if err != nil {
		panic(fmt.Sprintf("BUG: config: prepared text does not parse: %T", err)) // the error itself would show values
	}
	entries := make([]entry, len(p.origins))
	for _, section := range file.Sections() {
		name := strings.TrimPrefix(section.Name(), "s")
		if section.Name() == "g" {
			name = ""
		}
		for _, key := range section.Keys() {
			for _, value := range key.ValueWithShadows() {
				n, text := p.unframe(value)
				entries[n] = entry{
					section: name,
					key:     strings.TrimSuffix(strings.TrimPrefix(key.Name(), "k"), "|"),
					value:   text,
					at:      p.origins[n],
				}
			}
		}
	}
	return entries
}

// unframe takes `N:VALUE|` apart.
func (p *preparer) unframe(framed string) (int, string) {
	number, text, _ := strings.Cut(framed, ":")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n >= len(p.origins) || !strings.HasSuffix(text, "|") {
		panic("BUG: config: the INI parser changed a framed value")
	}
	return n, strings.TrimSuffix(text, "|")
}
