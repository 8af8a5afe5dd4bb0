// Package fileselect selects files by group, store path and extension:
//
//	s, err := fileselect.Parse("group2/ group3/M00/ jpg")
//	s.Match("group3", 0, "JPG") // true: store path M00 of group3
//	s.Match("group3", 1, "jpg") // false: another store path
//	s.Match("group2", 1, "png") // false: another extension
//
// A word that ends in a slash is a place: a group, a store path of a group, or, as in "M00/", that
// store path of every group. Any other word is an extension, in any letter case. A file matches if
// it is in one of the places and has one of the extensions. A selector without places matches all
// places, and one without extensions all extensions. Choices holds a value for each file by many
// selectors.
package fileselect

import (
	"slices"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/i18n"
)

// MaxWords bounds the words of one selector.
const MaxWords = 256

// Selector is a set of files. The zero value selects all files. It does not change after Parse.
type Selector struct {
	places     []place
	extensions []string // lower case, without dot
}

// place is a group, or a store path.
type place struct {
	group string // empty = every group
	path  int    // anyPath = every store path
}

const anyPath = -1

// Parse reads the words of a selector, with blanks or commas between them.
func Parse(text string) (Selector, error) {
	var s Selector
	words := strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || c == '\t' || c == ',' })
	if len(words) > MaxWords {
		return Selector{}, i18n.Errorf("more than %d groups and extensions", MaxWords)
	}
	for _, word := range words {
		if name, ok := strings.CutSuffix(word, "/"); ok {
			p, ok := parsePlace(strings.TrimPrefix(name, "/"))
			if !ok {
				return Selector{}, i18n.Errorf(
					"%q is neither a group such as group1/ nor a store path such as group1/M00/", word)
			}
			s.places = append(s.places, p)
			continue
		}
		extension := strings.ToLower(strings.TrimPrefix(word, "."))
		if !isExtension(extension) {
			return Selector{}, i18n.Errorf("%q is neither an extension such as jpg nor a group such as group1/", word)
		}
		s.extensions = append(s.extensions, extension)
	}
	return s, nil
}

// parsePlace reads GROUP, GROUP/M00 or M00.
func parsePlace(text string) (place, bool) {
	group, path, hasPath := strings.Cut(text, "/")
	if !hasPath {
		if index, ok := parseStorePath(group); ok {
			return place{path: index}, true
		}
		return place{group, anyPath}, isGroup(group)
	}
	index, ok := parseStorePath(path)
	return place{group, index}, ok && isGroup(group)
}

// parseStorePath reads M00 to MFF.
func parseStorePath(text string) (int, bool) {
	if len(text) != 3 || text[0] != 'M' {
		return 0, false
	}
	n, err := strconv.ParseUint(text[1:], 16, 8)
	return int(n), err == nil
}

// maxGroup is the longest name of a group, in bytes.
const maxGroup = 16

func isGroup(name string) bool { return len(name) <= maxGroup && isWord(name, "") }

// isExtension reports whether name has only characters that extensions of file ids can have.
func isExtension(name string) bool { return isWord(name, "_-") }

// isWord reports whether text consists of letters, digits and marks, and is not empty.
func isWord(text, marks string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune(marks, c)
	})
}

// IsEmpty reports whether the selector has no words.
func (s Selector) IsEmpty() bool { return len(s.places) == 0 && len(s.extensions) == 0 }

// Groups returns the groups that the selector names.
func (s Selector) Groups() (list []string) {
	for _, p := range s.places {
		if p.group != "" {
			list = append(list, p.group)
		}
	}
	return list
}

// Match reports whether a file is selected. The extension has no dot, and any letter case.
func (s Selector) Match(group string, storePath int, extension string) bool {
	return s.matchPlace(group, storePath) && s.matchExtension(extension)
}

func (s Selector) matchPlace(group string, storePath int) bool {
	if len(s.places) == 0 {
		return true
	}
	return slices.ContainsFunc(s.places, func(p place) bool {
		return (p.group == "" || p.group == group) && (p.path == anyPath || p.path == storePath)
	})
}

func (s Selector) matchExtension(extension string) bool {
	if len(s.extensions) == 0 {
		return true
	}
	return slices.ContainsFunc(s.extensions, func(e string) bool { return strings.EqualFold(e, extension) })
}
