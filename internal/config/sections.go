package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
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

// AccessName is the section of the rules for all files, and the first word of the sections whose
// other words select files: [access jpg png], [access group2/ group3/M00/ jpg].
const AccessName = "access"

// AccessSection is a section [access SELECTORS].
type AccessSection struct {
	Name  string // with its words
	Files fileselect.Selector
	Access
	written []string // the keys that the section has; the others are those of [access]
}

// Writes reports whether the section has one of the keys.
func (s *AccessSection) Writes(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(s.written, key) })
}

// applyAccess reads the sections [access SELECTORS].
func (l *loader) applyAccess() {
	for _, s := range l.fileSections(AccessName, false) {
		section := &AccessSection{Name: s.name, Files: s.files, Access: l.c.Access}
		settings := accessKeys(&section.Access)
		for _, e := range s.lines {
			i := slices.IndexFunc(settings, func(key setting) bool { return key.key == e.key })
			if i < 0 {
				l.unknownKey(e, settings)
				continue
			}
			l.keep(e)
			setDefaults(settings[i:i+1], e.at) // an empty value is the default, not the value of [access]
			l.apply(settings[i], e)
			section.written = append(section.written, e.key)
		}
		l.c.AccessSections = append(l.c.AccessSections, section)
	}
}

// anyAccess reports whether is holds for [access] or a section [access SELECTORS].
func (c *Config) anyAccess(is func(*Access) bool) bool {
	return is(&c.Access) || slices.ContainsFunc(c.AccessSections, func(s *AccessSection) bool { return is(&s.Access) })
}

// restricts reports whether any clients or pages are kept out.
func (a *Access) restricts() bool { return !a.Allow.Empty() || !a.Deny.Empty() || len(a.Referers) > 0 }

// Opened names the protection that c has and now does not have any more.
func (c *Config) Opened(now *Config) (list []string) {
	if c.AntiSteal.CheckToken && !now.AntiSteal.CheckToken {
		at := c.at(checkTokenKey)
		list = append(list, fmt.Sprintf("tokens are off now: before they were on (%s:%d)", at.file, at.line))
	}
	if c.anyAccess((*Access).restricts) && !now.anyAccess((*Access).restricts) {
		list = append(list, "[access] has no rules now: before it kept clients or pages out")
	}
	return list
}

// ChecksReferers reports whether the referers of any requests are checked.
func (c *Config) ChecksReferers() bool {
	return c.anyAccess(func(a *Access) bool { return len(a.Referers) > 0 })
}

// redirectTarget parses a URL of http or https, or a path of this host; empty = none.
func redirectTarget(p *string) field {
	return text(p).then(func(v string) *parseError {
		u, err := url.Parse(v)
		switch {
		case v == "":
			return nil
		case err == nil && strings.HasPrefix(v, "/") && u.Host == "":
		case err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil:
		default:
			return invalid("write a URL such as https://www.example.com/no-hotlinks.html, or a path", "is no URL")
		}
		if strings.ContainsFunc(v, func(c rune) bool { return c <= ' ' || c > '~' || c == '\\' }) {
			return invalid("write other characters percent-encoded", "holds characters that a URL cannot have")
		}
		return nil
	})
}
