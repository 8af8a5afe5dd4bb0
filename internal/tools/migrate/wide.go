package migrate

import (
	"fmt"
	"regexp"
	"strings"
)

// wide are characters that look like characters of nginx's syntax but are others, with the intended
// ones.
var wide = map[rune]string{
	'；': ";", '｛': "{", '｝': "}", '“': `"`, '”': `"`, '‘': "'", '’': "'", '＂': `"`, '＇': "'",
	'　': "a blank", '\u00a0': "a blank", '\u200b': "nothing", '＃': "#",
}

// wideCharacters returns findings about wide characters outside comments and quotes. To nginx they
// are letters: a directive does not end where it seems to, and a quote is a part of its argument. A
// block that is not closed is a finding at its first line.
func wideCharacters(file, text string) (found []Finding) {
	line, quote, tokenStart := 1, rune(0), true
	comment, escaped, last := false, false, 0
	var open []int // lines of {
	for _, c := range luaBlocks(text) {
		if c == '\n' {
			line++
			comment = false
		}
		switch {
		case comment:
			continue
		case escaped:
			escaped, tokenStart = false, false
			continue
		case c == '\\':
			escaped = true
			continue
		case quote != 0:
			if c == quote {
				quote, tokenStart = 0, true
			}
			continue
		case tokenStart && (c == '"' || c == '\''):
			quote = c
			continue
		case tokenStart && c == '#':
			comment = true
			continue
		}
		switch {
		case c == '{':
			open = append(open, line)
		case c == '}' && len(open) > 0:
			open = open[:len(open)-1]
		}
		if meant, ok := wide[c]; ok && last != line {
			last = line
			f := Finding{Kind: Mistake, File: file, Line: line, Advice: "write " + meant,
				Text: fmt.Sprintf("the full-width or typographic character %q is a letter to nginx", c)}
			if meant == `"` || meant == "'" {
				f.Kind = Untranslated // nginx starts with it
			}
			found = append(found, f)
		}
		tokenStart = strings.ContainsRune(" \t\r\n;{}(", c)
	}
	if len(open) > 0 && !luaBlock.MatchString(text) {
		found = append(found, Finding{Kind: Mistake, File: file, Line: open[0],
			Text: "the file ends before the } of this block, or of one in it"})
	}
	return found
}

var luaBlock = regexp.MustCompile(`[a-z_]+_by_lua_block\s*\{`)

// luaBlocks returns a text without the Lua in it, which has its own quotes and may have any letter.
func luaBlocks(text string) string {
	b := []byte(text)
	for _, at := range luaBlock.FindAllStringIndex(text, -1) {
		for i, depth := at[1], 1; i < len(b) && depth > 0; i++ {
			switch b[i] {
			case '{':
				depth++
			case '}':
				depth--
			}
			if depth > 0 && b[i] != '\n' {
				b[i] = ' '
			}
		}
	}
	return string(b)
}
