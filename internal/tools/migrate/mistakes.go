package migrate

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"fastdfs-gateway/internal/i18n"

	crossplane "github.com/nginxinc/nginx-go-crossplane"
)

// MistakesError is the error of Read for a text that is not a configuration of nginx.
type MistakesError []Finding

func (e MistakesError) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// mistakes returns the errors of the parser, and those that it does not see or does not explain.
func (r *reader) mistakes(payload *crossplane.Payload) (all []Finding) {
	for _, e := range payload.Errors {
		f := Finding{Kind: Mistake, File: r.shown(e.File), Text: parserText(e.Error.Error())}
		if e.Line != nil {
			f.Line = *e.Line
		}
		var parse *crossplane.ParseError
		if errors.As(e.Error, &parse) {
			if f.Text = parserText(parse.What); parse.Line != nil {
				f.Line = *parse.Line
			}
		}
		f.Line = min(f.Line, strings.Count(r.texts[e.File], "\n")+1) // not in the blocks around a bare file
		all = append(all, f)
	}
	for path, text := range r.texts {
		all = append(all, scan(r.shown(path), text)...)
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line) })
	seen := map[string]bool{} // files with a mistake: blocks after it may seem to be in the wrong place
	return slices.DeleteFunc(all, func(f Finding) bool {
		follows := seen[f.File] && (strings.HasSuffix(f.Text.String(), "directive is not allowed here") ||
			strings.HasPrefix(f.Text.String(), "unexpected end of file"))
		seen[f.File] = seen[f.File] || f.Kind == Mistake
		return follows
	})
}

var quoted = lazy(`"[^"]*"`)

// parserText returns the text of an error of the parser. Its words in quotes are the arguments.
func parserText(what string) i18n.Text {
	var args []any
	format := quoted().ReplaceAllStringFunc(strings.ReplaceAll(what, "%", "%%"), func(word string) string {
		args = append(args, strings.ReplaceAll(word, "%%", "%"))
		return "%s"
	})
	return i18n.Sprintf(format, args...)
}

// wide are characters that look like characters of nginx's syntax but are letters to it, with the
// intended ones.
var wide = map[rune]string{
	'；': ";", '｛': "{", '｝': "}", '“': `"`, '”': `"`, '‘': "'", '’': "'", '＂': `"`, '＇': "'",
	'　': " ", '\u00a0': " ", '\u200b': "", '＃': "#",
}

// module matches the directive of the module, also misspelt.
var module = lazy(`(?m)^[^#\n]*\b(ngx_fastdfs\w*)`)

// scan returns findings about misspelt directives of the module, wide characters outside comments
// and quotes, and quotes and blocks without an end, at the line where they begin.
func scan(file, text string) (found []Finding) {
	mistake := func(line int, text, advice any) {
		found = append(found, Finding{Kind: Mistake, File: file, Line: line, Text: i18n.Of(text),
			Advice: i18n.Of(advice)})
	}
	for _, m := range module().FindAllStringSubmatchIndex(text, -1) {
		if name := text[m[2]:m[3]]; name != "ngx_fastdfs_module" {
			mistake(1+strings.Count(text[:m[2]], "\n"), i18n.Sprintf("%s: this directive is not known", name),
				"did you mean ngx_fastdfs_module?")
		}
	}
	var open []int // lines of {
	line, last, quoteLine, quote, before := 1, 0, 0, rune(0), ' '
	for _, c := range text {
		begins := strings.ContainsRune(" \t\r\n;{}(", before) // a quote or comment may begin
		switch meant, isWide := wide[c]; {
		case quote == '#' && c == '\n', quote != 0 && quote == c && before != '\\':
			quote = 0
		case quote != 0:
		case begins && strings.ContainsRune(`"'#`, c):
			quote, quoteLine = c, line
		case c == '{' && before != '\\':
			open = append(open, line)
		case c == '}' && before != '\\' && len(open) > 0:
			open = open[:len(open)-1]
		case isWide && last != line:
			last = line
			mistake(line, i18n.Sprintf("the full-width or typographic character %q is a letter to nginx", c),
				i18n.Sprintf("write '%s'", meant))
			if meant == `"` || meant == "'" {
				found[len(found)-1].Kind = Untranslated // nginx starts with it
			}
		}
		if c == '\n' {
			line++
		}
		if c == '\\' && before == '\\' {
			c = ' '
		}
		before = c
	}
	if quote == '"' || quote == '\'' {
		mistake(quoteLine, "the quote that begins here has no end", "")
	} else if len(open) > 0 {
		mistake(open[0], "the file ends before the } of this block, or of one in it", "")
	}
	return found
}

var (
	luaBlock = lazy(`(?m)^([^#\n]*[a-z_]+_by_lua_block)\s*\{`)
	luaToken = lazy("(?:--)?\\[(=*)\\[|--[^\n]*|[{}]|" + `"(?:\\(?s:.)|[^"\\\n])*"|'(?:\\(?s:.)|[^'\\\n])*'`)
)

// withoutLua cuts the content of *_by_lua_block { ... }: its comments and strings have braces and
// quotes of their own. Line breaks stay. nginx has a directive with one argument then: a word of a
// check, or empty.
func withoutLua(text string) string {
	var b strings.Builder
	for {
		at := luaBlock().FindStringSubmatchIndex(text)
		if at == nil {
			return b.String() + text
		}
		to := luaEnd(text, at[1])
		check, lines := luaCheck().FindString(text[at[1]:to]), strings.Count(text[at[3]:to], "\n")
		if check != "" {
			check = "... " + check + " ..."
		}
		b.WriteString(text[:at[3]] + " '" + check + "'" + strings.Repeat("\n", lines) + ";")
		text = text[min(to+1, len(text)):]
	}
}

// luaEnd returns the index of the } that closes a Lua block.
func luaEnd(text string, i int) int {
	for depth := 1; depth > 0; {
		at := luaToken().FindStringSubmatchIndex(text[i:])
		if at == nil {
			return len(text)
		}
		begin, token := i, text[i+at[0]:i+at[1]]
		switch i += at[1]; {
		case at[2] >= 0: // a long text, or a comment of several lines
			end := "]" + text[begin+at[2]:begin+at[3]] + "]"
			length := strings.Index(text[i:], end)
			if length < 0 {
				return len(text)
			}
			i += length + len(end)
		case token == "{":
			depth++
		case token == "}":
			depth--
		}
	}
	return i - 1
}
