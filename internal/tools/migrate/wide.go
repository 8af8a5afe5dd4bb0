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
	line, quote, tokenStart, quoteLine := 1, rune(0), true, 0
	found = misspelt(file, text)
	comment, escaped, last := false, false, 0
	var open []int // lines of {
	for _, c := range text {
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
			quote, quoteLine = c, line
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
	if quote != 0 {
		found = append(found, Finding{Kind: Mistake, File: file, Line: quoteLine,
			Text: "the quote that begins here has no end"})
	} else if len(open) > 0 {
		found = append(found, Finding{Kind: Mistake, File: file, Line: open[0],
			Text: "the file ends before the } of this block, or of one in it"})
	}
	return found
}

// misspelt returns the lines with a misspelt directive of the module.
func misspelt(file, text string) (found []Finding) {
	for i, l := range strings.Split(text, "\n") {
		if m := module.FindString(l); m != "" && m != "ngx_fastdfs_module" && !strings.Contains(l, "#") {
			found = append(found, Finding{Kind: Mistake, File: file, Line: i + 1, Directive: m,
				Text: "this directive is not known", Advice: "did you mean ngx_fastdfs_module?"})
		}
	}
	return found
}

// module matches the directive of the module, also misspelt.
var module = regexp.MustCompile(`\bngx_fastdfs\w*`)

var luaBlock = regexp.MustCompile(`[a-z_]+_by_lua_block\s*\{`)

// withoutLua cuts the content of *_by_lua_block { ... }: its comments and strings have braces and
// quotes of their own. Line breaks stay. nginx has a directive with an empty argument then.
func withoutLua(text string) string {
	var b strings.Builder
	for {
		at := luaBlock.FindStringIndex(text)
		if at == nil {
			return b.String() + text
		}
		to := luaEnd(text, at[1])
		name := strings.TrimSpace(strings.TrimSuffix(text[at[0]:at[1]], "{"))
		b.WriteString(text[:at[0]] + name + " ''" + strings.Repeat("\n", strings.Count(text[at[0]:to], "\n")) + ";")
		text = text[min(to+1, len(text)):]
	}
}

// luaEnd returns the index of the } that closes a Lua block.
func luaEnd(text string, i int) int {
	for depth := 1; i < len(text); i++ {
		switch c := text[i]; {
		case strings.HasPrefix(text[i:], "--"):
			if end, ok := luaLong(text, i+2); ok {
				i = end
			} else if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
				i += n
			}
		case c == '"' || c == '\'':
			for i++; i < len(text) && text[i] != c && text[i] != '\n'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case c == '[':
			if end, ok := luaLong(text, i); ok {
				i = end
			}
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

// luaLong returns the index of the last character of a long string or comment that begins at i.
func luaLong(text string, i int) (end int, ok bool) {
	m := luaBracket.FindStringSubmatch(text[i:])
	if m == nil {
		return 0, false
	}
	closing := "]" + m[1] + "]"
	n := strings.Index(text[i:], closing)
	if n < 0 {
		return len(text), true
	}
	return i + n + len(closing) - 1, true
}

var luaBracket = regexp.MustCompile(`^\[(=*)\[`)
