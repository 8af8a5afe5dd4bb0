package compare

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
)

// maxSums bounds the number of sums: a log may hold any number of extensions.
const maxSums = 200

// Sum is the number of paths with differences of one kind: with one known reason, or with one pair
// of media types for one extension.
type Sum struct {
	Known     string `json:"known,omitempty"`     // the reason; empty: the difference is not a known one
	Field     string `json:"field,omitempty"`     // Content-Type with Extension, Old and New; else empty
	Extension string `json:"extension,omitempty"` // with its dot; empty: the names have none
	Old       string `json:"old,omitempty"`
	New       string `json:"new,omitempty"`
	Paths     int    `json:"paths"`
	Example   string `json:"example"` // the first of these paths
}

// Sums counts differences that are the same for thousands of paths of a real log. The zero value is
// ready to use. Only one goroutine may use it.
type Sums struct {
	sums map[Sum]*Sum // by the fields of the kind
}

// Add counts the differences of one path and returns those that are to be shown one by one.
func (s *Sums) Add(r Result) (rest []Difference) {
	counted := map[Sum]bool{} // kinds of this path
	for _, d := range r.Differences {
		kind, ok := kindOf(r.Target, d)
		if !ok || !counted[kind] && !s.count(kind, r.Target) {
			rest = append(rest, d)
			continue
		}
		counted[kind] = true
	}
	return rest
}

// count adds one path to a sum. It reports whether there is room for the sum.
func (s *Sums) count(kind Sum, target string) bool {
	sum := s.sums[kind]
	if sum == nil {
		if len(s.sums) >= maxSums {
			return false
		}
		if s.sums == nil {
			s.sums = map[Sum]*Sum{}
		}
		sum = &Sum{}
		*sum = kind
		sum.Example = target
		s.sums[kind] = sum
	}
	sum.Paths++
	return true
}

// kindOf returns the fields that differences of one kind share; false for a difference that is to
// be shown by itself.
func kindOf(target string, d Difference) (Sum, bool) {
	switch d.Known {
	case "":
		if d.Field != "Content-Type" {
			return Sum{}, false
		}
		fallthrough
	case registeredType, builtInType:
		return Sum{Known: d.Known, Field: d.Field, Extension: extension(target), Old: d.Old, New: d.New}, true
	}
	return Sum{Known: d.Known}, true
}

// extension returns the extension of the file of a target, in lower case.
func extension(target string) string {
	name, _, _ := strings.Cut(target, "?")
	return strings.ToLower(path.Ext(name))
}

// All returns the sums: unknown kinds before known ones, and in each part the sums with most paths
// first.
func (s *Sums) All() []Sum {
	var all []Sum
	for sum := range maps.Values(s.sums) {
		all = append(all, *sum)
	}
	slices.SortFunc(all, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(min(1, len(a.Known)), min(1, len(b.Known))),
			cmp.Compare(b.Paths, a.Paths), cmp.Compare(a.Known, b.Known), cmp.Compare(a.Extension, b.Extension),
			cmp.Compare(a.Old, b.Old), cmp.Compare(a.New, b.New))
	})
	return all
}
