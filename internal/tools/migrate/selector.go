package migrate

import (
	"slices"
	"strings"
)

// selector is a set of files, as the words of [access] and [headers] select them: those in one of
// the places with one of the extensions. The zero value selects all files.
type selector struct {
	places []string // group1/, group1/M00/, or M00/ of every group
	exts   []string // lower case
}

// String returns the words, each with a blank in front.
func (s selector) String() (text string) {
	for _, w := range slices.Concat(s.places, s.exts) {
		text += " " + w
	}
	return text
}

func (s selector) all() bool { return len(s.places)+len(s.exts) == 0 }

// covers reports whether s has all files of another selector.
func (s selector) covers(o selector) bool {
	return isWithin(o.places, s.places, func(a, b string) bool {
		ag, ap := splitPlace(a)
		bg, bp := splitPlace(b)
		return (bg == "" || bg == ag) && (bp == "" || bp == ap)
	}) && isWithin(o.exts, s.exts, func(a, b string) bool { return a == b })
}

// isWithin reports whether each word of a is in one of b; no words select all files.
func isWithin(a, b []string, isIn func(a, b string) bool) bool {
	return len(b) == 0 || len(a) > 0 && !slices.ContainsFunc(a, func(x string) bool {
		return !slices.ContainsFunc(b, func(y string) bool { return isIn(x, y) })
	})
}

// meets reports whether two selectors may have files in common.
func (s selector) meets(o selector) bool {
	return anyPair(s.places, o.places, func(a, b string) bool {
		ag, ap := splitPlace(a)
		bg, bp := splitPlace(b)
		return (ag == "" || bg == "" || ag == bg) && (ap == "" || bp == "" || ap == bp)
	}) && anyPair(s.exts, o.exts, func(a, b string) bool { return a == b })
}

// anyPair reports whether meet holds for a word of a and one of b; no words select all files.
func anyPair(a, b []string, meet func(a, b string) bool) bool {
	return len(a)*len(b) == 0 || slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return meet(x, y) })
	})
}

// splitPlace returns the group and the store path of a place; empty = any.
func splitPlace(place string) (group, path string) {
	group, path, _ = strings.Cut(strings.TrimSuffix(place, "/"), "/")
	if storePath().MatchString(group) {
		return "", group
	}
	return group, path
}
