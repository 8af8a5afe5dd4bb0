package config

import (
	"regexp"
	"strings"
	"sync"

	"fastdfs-gateway/internal/httpserver/fileselect"
	"fastdfs-gateway/internal/i18n"
)

// fileSection is a section whose words after the first one select files.
type fileSection struct {
	name  string
	files fileselect.Selector
	lines []entry
}

// selects reports whether a section begins with the word first, and selects files by further words.
func selects(section, first string) bool {
	words := strings.Fields(section)
	return len(words) > 1 && words[0] == first
}

// fileSections returns the sections that select files behind the word first, in the order of their
// lines: a section that is opened again counts as a later one. With all it returns the section
// without further words too.
func (l *loader) fileSections(first string, all bool) (list []fileSection) {
	is := func(section string) bool { return selects(section, first) || all && section == first }
	for name := range l.doc.sections {
		if is(name) {
			l.lastEntries(name) // for the warnings
			l.lintSelector(name, first)
		}
	}
	last := ""
	for _, e := range l.doc.entries {
		opened := e.section != last
		last = e.section
		switch {
		case !is(e.section):
			continue
		case opened && len(list) == fileselect.MaxSelectors:
			l.errorf(e.at, e.section, "merge sections", "more than %d sections [%s ...]", len(list), first)
			return list
		case opened:
			list = append(list, fileSection{name: e.section, files: l.selector(e.section, first)})
		}
		section := &list[len(list)-1]
		section.lines = append(section.lines, e)
	}
	return list
}

// selector parses the words of a section after the first one.
func (l *loader) selector(section, first string) fileselect.Selector {
	_, words, _ := strings.Cut(section, first)
	files, err := fileselect.Parse(words)
	if err != nil {
		l.errorf(l.doc.sections[section], section,
			i18n.Sprintf("write extensions and groups, such as [%s jpg png] or [%s group2/ group3/M00/]", first, first),
			"[%s]: %v", clip(section), err)
	}
	return files
}

// lintSelector reports words of a selector that are taken for something else than they look like.
func (l *loader) lintSelector(section, first string) {
	_, words, _ := strings.Cut(section, first)
	for word := range strings.FieldsSeq(words) {
		if looksPlace().MatchString(word) {
			l.warnf(l.doc.sections[section], section, i18n.Sprintf("did you mean %s?", clip(word+"/")),
				"[%s]: %s is taken for an extension", clip(section), clip(word))
		}
	}
	files, _ := fileselect.Parse(words) // selector reports the error
	for _, group := range files.Groups() {
		l.lintGroup(section, group)
	}
}

// lintGroup reports a group in a selector that differs from one of this host only in its letters'
// case, or that no request can name.
func (l *loader) lintGroup(section, group string) {
	near := ""
	for _, g := range l.c.Groups {
		if g.Name == group {
			return
		}
		if strings.EqualFold(g.Name, group) {
			near = g.Name
		}
	}
	fix := i18n.Plain("write the name of a group of this host, or set tracker_server")
	if near != "" {
		fix = i18n.Sprintf("did you mean %s?", near+"/")
	}
	if near != "" || len(l.c.TrackerServers) == 0 {
		l.warnf(l.doc.sections[section], section, fix, "[%s]: %s is no group of this host", clip(section), clip(group))
	}
}

// looksPlace matches a word that was meant as a group or a store path, without its slash.
var looksPlace = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^(group[0-9]+|M0[0-9A-F])$`) })
