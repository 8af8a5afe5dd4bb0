package config

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"fastdfs-gateway/internal/i18n"
)

// nginxBlock matches the line that opens a block of nginx.conf.
var nginxBlock = regexp.MustCompile(`(?m)^\s*(http|server|events|location|upstream)\b[^=#\n]*\{\s*$`)

// otherFormat returns what a file is in place of a configuration, and a fix; ok is false for a
// configuration.
func otherFormat(data []byte) (what, fix i18n.Text, ok bool) {
	text := bytes.TrimSpace(data)
	switch {
	case bytes.IndexByte(data, 0) >= 0:
		return i18n.Plain("holds NUL bytes, it is no text (or UTF-16)"),
			i18n.Plain("save it as UTF-8 or plain ASCII text"), true
	case bytes.IndexByte(text, '\r') >= 0 && bytes.IndexByte(data, '\n') < 0:
		return i18n.Plain("has lines that end with CR alone, so it is one line"),
			i18n.Plain("save it with lines that end with LF, or CR and LF"), true
	case len(text) > 0 && text[0] == '{' && json.Valid(text):
		return i18n.Plain("is JSON"), i18n.Plain("write lines key = value, as in mod_fastdfs.conf"), true
	case nginxBlock.Match(data):
		return i18n.Plain("is a configuration of nginx"), i18n.Plain("gateway migrate -nginx FILE translates it"), true
	}
	return i18n.Text{}, i18n.Text{}, false
}

// includeLine matches a line of the dialect that includes a file. The word is compared without
// case, as the module does.
var includeLine = regexp.MustCompile(`(?i)^#include(?:[ \t\r\v\f]+(.*))?$`)

// nearInclude matches a line that was meant to include a file, and that neither the module nor the
// gateway reads so: the beginning of a comment, and the name.
var nearInclude = regexp.MustCompile(`(?i)^(#\s*)?include(?:\s*[:=]\s*|\s+)(\S+)$`)

// commentDirective matches a directive of libfastcommon that the gateway does not evaluate.
var commentDirective = regexp.MustCompile(`^#@(if|for|set)\b`)

// comment warns of a comment that was meant as a directive.
func (d *reader) comment(line string, at position) {
	if d.nearInclude(line, at) {
		return
	}
	if m := commentDirective.FindString(line); m != "" {
		d.report.warnf(at, "", "write the lines that hold on this host, without directives",
			"%s is not evaluated: it is a comment here, and all lines below it count", m)
	}
}

// nearInclude warns of a line that was meant as an include, and reports whether it was one.
func (d *reader) nearInclude(line string, at position) bool {
	m := nearInclude.FindStringSubmatch(line)
	if m == nil || len(m[1]) > 1 && !strings.ContainsAny(m[2], "./") { // a sentence such as "# include all"
		return false
	}
	d.report.warnf(at, "", i18n.Sprintf("did you mean #include %s?", clip(m[2])),
		"this line includes no file and is ignored")
	return true
}

// ignored warns of a line without = in the part of the module, which the module ignores. Its value
// may be a secret, so the message has the key alone.
func (d *reader) ignored(line string, at position) {
	switch {
	case line[0] == '[':
		d.report.warnf(at, "", "write the name in brackets and nothing behind it",
			"a line that begins with [ but does not end with ] opens no section and is ignored")
		return
	case d.nearInclude(line, at):
		return
	}
	word := line
	if i := strings.IndexAny(line, blanks+":＝"); i >= 0 {
		word = line[:i]
	}
	fix := i18n.Plain("write key = value, or # in front of a comment")
	if key, ok := Nearest(word, moduleNames()); ok {
		value := strings.Trim(line[len(word):], blanks+":＝")
		if looksSecret.MatchString(key) || value == "" {
			value = "..."
		}
		fix = i18n.Sprintf("did you mean %s = %s?", key, clip(value))
	}
	d.report.warnf(at, "", fix, "a line without = is ignored")
}

// moduleNames returns the names of the keys of the module.
func moduleNames() []string {
	names := []string{"store_path0"}
	for _, s := range newTables(&Config{})[""] {
		names = append(names, s.key)
	}
	return names
}

// looksSecret matches names of keys whose values are not shown.
var looksSecret = regexp.MustCompile(`secret|value`)

// looksProtective matches names of keys that seem to have to do with tokens.
var looksProtective = regexp.MustCompile(`(?i)token|secret|steal`)
