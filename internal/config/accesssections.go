package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"fastdfs-gateway/internal/httpserver/fileselect"
)

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
			l.keep(e, false)
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
