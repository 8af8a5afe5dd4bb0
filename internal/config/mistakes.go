package config

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"fastdfs-gateway/internal/i18n"
)

// nginxLine matches a line that opens a block of nginx.conf, or has a directive that only nginx
// has.
var nginxLine = regexp.MustCompile(`(?m)^\s*((http|server|events|upstream)(\s[^=#\n]*)?\{|location\s[^;\n]*\{|` +
	`(worker_processes|ngx_fastdfs_module)\b[^=\n]*;)`)

// nginxBlock matches a block whose brace is on the line below its name.
var nginxBlock = regexp.MustCompile(`(?m)^\s*(http|server|events)\s*\n\s*\{`)

// loneCR matches the end of a line that is CR alone.
var loneCR = regexp.MustCompile(`\r+[^\r\n]`)

// otherFormat returns what a file is in place of a configuration, and a fix; ok is false for a
// configuration.
func otherFormat(data []byte) (what, fix i18n.Text, ok bool) {
	text := bytes.TrimSpace(bytes.TrimPrefix(data, []byte(byteOrderMark)))
	switch {
	case bytes.IndexByte(data, 0) >= 0:
		return i18n.Plain("holds NUL bytes, it is no text (or UTF-16)"),
			i18n.Plain("save it as UTF-8 or plain ASCII text"), true
	case len(loneCR.FindAll(text, -1)) > bytes.Count(text, []byte("\n")):
		return i18n.Plain("has lines that end with CR alone, so they are one line"),
			i18n.Plain("save it with lines that end with LF, or CR and LF"), true
	case len(text) > 0 && (text[0] == '{' || text[0] == '[' && json.Valid(text)):
		return i18n.Plain("is JSON"), i18n.Plain("write lines key = value, as in mod_fastdfs.conf"), true
	case nginxLine.Match(data), nginxBlock.Match(data):
		return i18n.Plain("is a configuration of nginx"), i18n.Plain("gateway migrate -nginx FILE translates it"), true
	}
	return i18n.Text{}, i18n.Text{}, false
}

// includeLine matches a line of the dialect that includes a file. The word is compared without
// case, as the module does.
var includeLine = regexp.MustCompile(`(?i)^#include(?:[ \t\r\v\f]+(.*))?$`)

// commentDirective matches a directive of libfastcommon that the gateway does not evaluate.
var commentDirective = regexp.MustCompile(`^#\s*@\s*((?i)if|for|set|function)\b`)

// comment warns of a comment that was meant as a directive.
func (d *reader) comment(line string, at position) {
	if fix, ok := includeFix(line); ok {
		d.report.warnf(at, "", fix, noInclude)
	} else if m := commentDirective.FindStringSubmatch(line); m != nil {
		d.report.warnf(at, "", "write the lines that hold on this host, without directives",
			"#@%s is not evaluated: it is a comment here, and all lines below it count", m[1])
	}
}

const noInclude = "this line includes no file and is ignored"

// wideBlanks are blanks that look like those of the dialect and are none: U+00A0 and U+3000.
const wideBlanks = "\u00a0\u3000"

// includeFix returns a fix for a line that was meant as an include and that neither the module nor
// the gateway reads so. ok is false for other lines, such as a sentence.
func includeFix(line string) (fix i18n.Text, ok bool) {
	isComment := line[0] == '#'
	noLetter := func(c rune) bool { return c|0x20 < 'a' || c|0x20 > 'z' }
	text := strings.TrimLeftFunc(line, noLetter)
	if isComment {
		text = strings.TrimLeft(line, "#"+blanks+wideBlanks)
	}
	word := text[:len(text)-len(strings.TrimLeftFunc(text, func(c rune) bool { return !noLetter(c) }))]
	const include = "include"
	switch {
	case strings.EqualFold(word, "import"), distance(strings.ToLower(word), include) <= 2:
	case len(word) > len(include) && strings.EqualFold(word[:len(include)], include):
		word = word[:len(include)]
	default:
		return i18n.Text{}, false
	}
	name := strings.Trim(text[len(word):], blanks+wideBlanks+`:=：＝"'<>;`)
	sure := !isComment || line[1] == word[0] && strings.EqualFold(word, include)
	if name == "" || strings.ContainsAny(name, blanks) || !sure && !strings.ContainsAny(name[:len(name)-1], "./") {
		return i18n.Text{}, false
	}
	return i18n.Sprintf("did you mean #include %s?", clip(name)), true
}

// noSetting reports a line without =. In the part of the module, it is ignored, as by the module.
func (d *reader) noSetting(line string, at position) {
	section, severity, text := "", Warning, i18n.Plain("a line without = is ignored")
	if isOwn(d.section) {
		section, severity = d.section, Error
		text = i18n.Sprintf("a line without = is no setting of [%s]", section)
	}
	names := append(namesOf(newTables(&Config{})[section]), "store_path0")
	if name := strings.TrimLeft(line, openBrackets); name != line {
		d.noSection(name, at)
	} else if fix, ok := includeFix(line); ok && section == "" {
		d.report.warnf(at, "", fix, noInclude)
	} else {
		word, value := cutWord(line)
		if first, _, _ := strings.Cut(value, " "); section == "" && isTrue(strings.TrimRight(first, ";")) {
			d.loose = append(d.loose, entry{"", word, first, at})
		}
		d.report.addProblem(severity, at, "", text, settingFix(word, names))
	}
}

// openBrackets and closeBrackets are characters around the name of a section, also full-width ones.
const openBrackets, closeBrackets = "[({［【（", "])}］】）"

// noSection reports a line that was meant to open a section. It is an error for a section of the
// gateway: its keys would not count.
func (d *reader) noSection(name string, at position) {
	if end := strings.IndexAny(name, closeBrackets); end >= 0 {
		name = name[:end]
	}
	severity, fix := Warning, i18n.Plain("write the name in brackets and nothing behind it")
	if words := strings.Fields(name); len(words) > 0 {
		if near, ok := Nearest(words[0], ownSections); ok {
			severity, fix = Error, i18n.Sprintf("did you mean [%s]?", near)
		}
	}
	d.report.addProblem(severity, at, "", i18n.Plain("this line opens no section and is ignored"), fix)
}

// cutWord cuts the first word off a line without =.
func cutWord(line string) (word, rest string) {
	const between = blanks + wideBlanks + ":：＝"
	if i := strings.IndexAny(line, between); i >= 0 {
		return line[:i], strings.Trim(line[i:], between)
	}
	return line, ""
}

// settingFix returns a fix for a line without = that begins with a word. Its value may be a secret,
// so it is not shown.
func settingFix(word string, names []string) i18n.Text {
	if key, ok := Nearest(word, names); ok {
		return i18n.Sprintf("did you mean %s = ...?", key)
	}
	return i18n.Plain("write key = value, or # in front of a comment")
}

// Nearest returns the candidate with the most similar spelling; ok is false if none is similar. Of
// a candidate with dots, the end counts as well: check_token is http.anti_steal.check_token.
func Nearest(name string, candidates []string) (nearest string, ok bool) {
	best, bestDistance := "", 3
	for _, c := range candidates {
		for end, more := c, true; more; _, end, more = strings.Cut(end, ".") {
			if strings.EqualFold(fold(name), fold(end)) {
				return c, true
			}
			limit := 2
			if len(end) < 6 {
				limit = 1
			}
			if d := distance(name, end); d <= limit && d < bestDistance {
				best, bestDistance = c, d
			}
		}
	}
	return best, best != ""
}

// fold replaces `-`, `.` and blanks by `_`.
func fold(s string) string {
	return strings.NewReplacer("-", "_", ".", "_", " ", "_").Replace(s)
}

// distance returns the number of insertions, deletions, changes and swaps of neighbours from a to b
// (optimal string alignment). For lengths that differ by more than two it returns a large number.
func distance(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return len(a) + len(b)
	}
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}
