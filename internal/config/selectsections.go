package config

import (
	"regexp"
	"strings"
	"sync"

	"fastdfs-gateway/internal/httpserver/fileselect"
	"fastdfs-gateway/internal/i18n"
)

// selectSections reads the sections for which is reports true, in the order of their lines: a
// section that is opened again counts as a later one. It calls begin with the name of a section and
// the files that the words after its first one select, and line with each of its lines.
func (l *loader) selectSections(first string, is func(section string) bool,
	begin func(section string, files fileselect.Selector), line func(entry),
) {
	for name := range l.doc.sections {
		if is(name) {
			l.lastEntries(name) // for the warnings
		}
	}
	last, sections := "", 0
	for _, e := range l.doc.entries {
		opened := e.section != last
		last = e.section
		switch {
		case !is(e.section):
			continue
		case opened && sections == fileselect.MaxSelectors:
			l.errorf(e.at, e.section, "merge sections", "more than %d sections [%s ...]", sections, first)
			return
		case opened:
			sections++
			begin(e.section, l.selector(e.section, first))
		}
		line(e)
	}
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
	for word := range strings.FieldsSeq(words) {
		if looksPlace().MatchString(word) {
			l.warnf(l.doc.sections[section], section, i18n.Sprintf("did you mean %s?", clip(word+"/")),
				"[%s]: %s is taken for an extension", clip(section), clip(word))
		}
	}
	return files
}

// looksPlace matches a word that was meant as a group or a store path, without its slash.
var looksPlace = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^(group[0-9]+|M0[0-9A-F])$`) })
