package config

import (
	"iter"
	"net/url"
	"slices"
	"strings"

	"fastdfs-gateway/internal/httpserver/fileselect"
)

// accessSection is the section of the rules for all files, and the first word of the sections whose
// other words select files: [access jpg png], [access group2/ group3/M00/ jpg].
const accessSection = "access"

// AccessSection is a section [access SELECTORS].
type AccessSection struct {
	Name  string // with its words
	Files fileselect.Selector
	Access
	written []string // the keys that the section has; the others are those of [access]
}

// Writes tells whether the section has one of the keys.
func (s *AccessSection) Writes(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(s.written, key) })
}

// isAccessFor reports whether a section is [access SELECTORS].
func isAccessFor(section string) bool {
	words := strings.Fields(section)
	return len(words) > 1 && words[0] == accessSection
}

// applyAccess reads the sections [access SELECTORS], in the order of the lines: a section that is
// opened again is a later one.
func (l *loader) applyAccess() {
	for name := range l.doc.sections {
		if isAccessFor(name) {
			l.lastEntries(name) // for the warnings
		}
	}
	last := ""
	for _, e := range l.doc.entries {
		opened := e.section != last
		if last = e.section; !isAccessFor(e.section) {
			continue
		}
		if opened && !l.openAccess(e) {
			return
		}
		l.accessLine(e, l.c.AccessSections[len(l.c.AccessSections)-1])
	}
}

// openAccess begins the section of an entry; false if there are too many.
func (l *loader) openAccess(e entry) bool {
	if len(l.c.AccessSections) == fileselect.MaxSelectors {
		l.errorf(e.at, e.section, "merge sections", "more than %d sections [access ...]", fileselect.MaxSelectors)
		return false
	}
	_, words, _ := strings.Cut(e.section, accessSection)
	files, err := fileselect.Parse(words)
	if err != nil {
		l.errorf(l.doc.sections[e.section], e.section,
			"write extensions and groups, such as [access jpg png] or [access group2/ group3/M00/]",
			"[%s]: %v", clip(e.section), err)
	}
	l.c.AccessSections = append(l.c.AccessSections, &AccessSection{Name: e.section, Files: files, Access: l.c.Access})
	return true
}

// accessLine reads one line of a section. An empty value is the default, not the value of [access].
func (l *loader) accessLine(e entry, s *AccessSection) {
	settings := accessKeys(&s.Access)
	i := slices.IndexFunc(settings, func(key setting) bool { return key.key == e.key })
	if i < 0 {
		l.unknownKey(e, settings)
		return
	}
	l.keep(e, false)
	setDefaults(settings[i:i+1], e.at)
	l.apply(settings[i], e)
	s.written = append(s.written, e.key)
}

// anyAccess reports whether is holds for [access] or a section [access SELECTORS].
func (c *Config) anyAccess(is func(*Access) bool) bool {
	return is(&c.Access) || slices.ContainsFunc(c.AccessSections, func(s *AccessSection) bool { return is(&s.Access) })
}

// ChecksReferers tells whether the referers of any requests are checked.
func (c *Config) ChecksReferers() bool {
	return c.anyAccess(func(a *Access) bool { return len(a.Referers) > 0 })
}

// refererFiles yields the keys referer_file with their paths; none if no referers are checked.
func (c *Config) refererFiles() iter.Seq2[string, string] {
	const key = "referer_file"
	return func(yield func(string, string) bool) {
		if !c.ChecksReferers() {
			return
		}
		if c.Access.RefererFile != "" && !yield(full(accessSection, key), c.Access.RefererFile) {
			return
		}
		for _, s := range c.AccessSections {
			if s.Writes(key) && s.RefererFile != "" && !yield(full(s.Name, key), s.RefererFile) {
				return
			}
		}
	}
}

// redirectTarget is a URL of http or https, or a path of this host; empty = none.
func redirectTarget(p *string) field {
	return checkedText(p, func(v string) *parseError {
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
