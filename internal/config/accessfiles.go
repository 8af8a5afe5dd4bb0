package config

import (
	"slices"
	"strings"

	"fastdfs-gateway/internal/httpserver/fileselect"
)

// accessSection is the first word of sections such as [access jpg png] or [access group2/]: rules
// for the selected files in place of those of [access].
const accessSection = "access"

// maxAccessSections bounds these sections.
const maxAccessSections = 64

// FileAccess is a section [access ...] with selectors.
type FileAccess struct {
	Files  fileselect.Selector
	Access Access          // of it allow, deny, referers and referer_file
	Set    map[string]bool // the keys that are written: an empty value takes back that of an earlier section
}

// isFileAccess reports whether a section is [access ...] with selectors.
func isFileAccess(section string) bool {
	words := strings.Fields(section)
	return len(words) > 1 && words[0] == accessSection
}

// fileAccessKeys are the keys of [access ...] with selectors. Rates are those of [access]: they
// count the requests of a client, not those of a file.
func fileAccessKeys(a *Access) []setting {
	return slices.DeleteFunc(accessKeys(a), func(s setting) bool {
		return !slices.Contains([]string{"allow", "deny", "referers", "referer_file"}, s.key)
	})
}

// applyFileAccess reads the sections [access ...] with selectors, in the order of the lines.
func (l *loader) applyFileAccess() {
	last := ""
	for _, e := range l.doc.entries {
		opened := e.section != last
		if last = e.section; !isFileAccess(e.section) {
			continue
		}
		if opened && !l.openFileAccess(e) {
			return
		}
		section := &l.c.FileAccess[len(l.c.FileAccess)-1]
		settings := fileAccessKeys(&section.Access)
		i := slices.IndexFunc(settings, func(s setting) bool { return s.key == e.key })
		if i < 0 {
			l.errorf(e.at, full(e.section, e.key), "write allow, deny, referers or referer_file",
				"[%s] has no key %q", clip(e.section), clip(e.key))
			continue
		}
		l.keep(e, false)
		l.apply(settings[i], e)
		section.Set[e.key] = true
	}
}

// openFileAccess begins the section of an entry; false if there are too many.
func (l *loader) openFileAccess(e entry) bool {
	if len(l.c.FileAccess) == maxAccessSections {
		l.errorf(e.at, e.section, "merge sections", "more than %d sections [access ...]", maxAccessSections)
		return false
	}
	_, words, _ := strings.Cut(e.section, accessSection)
	files, err := fileselect.Parse(words)
	if err != nil {
		l.errorf(l.doc.sections[e.section], e.section,
			"write extensions and groups, such as [access jpg png] or [access group2/ group3/M00/]",
			"[%s]: %v", clip(e.section), err)
	}
	l.c.FileAccess = append(l.c.FileAccess, FileAccess{Files: files, Set: map[string]bool{}})
	return true
}
