package migrate

import (
	"maps"
	"slices"
	"strings"
)

// choice is a value for the files that selectors name; without selectors it is for all files.
type choice struct {
	places []string // group1/, group1/M00/, or M00/ of all groups
	exts   []string
	value  string
}

// name returns the name of a section with the selectors.
func (c choice) name(section string) string {
	return strings.Join(slices.Concat([]string{section}, c.places, c.exts), " ")
}

// has reports whether the selectors match a kind of files.
func (c choice) has(k cell) bool {
	place := k.group + "/" + k.path + "/"
	return (len(c.exts) == 0 || slices.Contains(c.exts, k.ext)) &&
		(len(c.places) == 0 || slices.ContainsFunc(c.places, func(p string) bool {
			return strings.HasPrefix(place, p) || strings.HasSuffix(place, "/"+p)
		}))
}

// forAll reports whether a choice has no selectors.
func (c choice) forAll() bool { return len(c.places)+len(c.exts) == 0 }

// overlap reports whether both choices match some files.
func (u universe) overlap(a, b choice) bool {
	return slices.ContainsFunc(u.all, func(c cell) bool { return a.has(c) && b.has(c) })
}

// spread returns few choices that result in the values of the cells. Later choices win: choices for
// all extensions come first, then choices for some. Cells without a value may get any.
func (u universe) spread(values map[cell]string) (choices []choice) {
	base := u.base(values)
	choices = u.byPlace(base, map[cell]string{}, nil)
	var byExt []choice
	for _, e := range u.exts[1:] {
		here := map[cell]string{}
		for place := range base {
			if v, ok := values[cell{place.group, place.path, e}]; ok {
				here[place] = v
			}
		}
		for _, c := range u.byPlace(here, maps.Clone(base), []string{e}) {
			same := func(o choice) bool { return o.value == c.value && slices.Equal(o.places, c.places) }
			if i := slices.IndexFunc(byExt, same); i >= 0 {
				byExt[i].exts = append(byExt[i].exts, e)
			} else {
				byExt = append(byExt, c)
			}
		}
	}
	return append(choices, byExt...)
}

// base returns the value of each group and store path, as the value of the cell without an
// extension. If only files with some extensions have a value, groups and store paths that no
// pattern names have the value of those that patterns name.
func (u universe) base(values map[cell]string) map[cell]string {
	base := map[cell]string{}
	for _, g := range u.groups {
		for _, p := range u.paths {
			v, ok := u.commonest(values, func(c cell) bool { return c.group == g && c.path == p })
			if _, general := values[cell{g, p, ""}]; !general && (g == otherGroup || p == otherPath) {
				if named, any := u.commonest(base, func(c cell) bool {
					return g == otherGroup && c.path == p || g != otherGroup && c.group == g
				}); any {
					v = named
				}
			}
			if ok {
				base[cell{g, p, ""}] = v
			}
		}
	}
	return base
}

// byPlace returns the choices for the wanted values of groups and store paths: one for all places,
// then choices for store paths of all groups, for groups, and for store paths of one group. A
// choice exists only where the choices before it result in another value; got holds their values.
// Places that have the same value at the same level share a choice.
func (u universe) byPlace(want, got map[cell]string, exts []string) []choice {
	var levels [4][]choice
	set := func(level int, value string, of func(cell) bool, places ...string) {
		needed := false
		for c, w := range want {
			g, given := got[c]
			needed = needed || of(c) && w == value && (!given || g != value)
		}
		if !needed {
			return
		}
		i := slices.IndexFunc(levels[level], func(c choice) bool { return c.value == value })
		if i < 0 {
			i = len(levels[level])
			levels[level] = append(levels[level], choice{exts: exts, value: value})
		}
		levels[level][i].places = append(levels[level][i].places, places...)
		for c := range want {
			if (choice{places: places}).has(c) {
				got[c] = value
			}
		}
	}
	of := func(group string) func(cell) bool { return func(c cell) bool { return c.group == group } }
	if v, ok := uniform(want); ok {
		set(0, v, func(cell) bool { return true })
	} else if v, ok := u.commonest(want, of(otherGroup)); ok {
		set(0, v, of(otherGroup))
	}
	for _, g := range append([]string{otherGroup}, u.groups[:len(u.groups)-1]...) {
		place, level := "", 1
		if g != otherGroup {
			place, level = g+"/", 3
			if v, ok := u.commonest(want, of(g)); ok {
				set(2, v, of(g), place)
			}
		}
		for _, p := range u.paths {
			if v, ok := want[cell{g, p, ""}]; ok {
				set(level, v, func(c cell) bool { return c == cell{g, p, ""} }, place+p+"/")
			}
		}
	}
	return slices.Concat(levels[:]...)
}

// commonest returns the value that most cells have. Cells that no pattern names outweigh all
// others: first a cell for any group, then for any store path, then for any extension.
func (u universe) commonest(values map[cell]string, of func(cell) bool) (value string, ok bool) {
	count, best := map[string]int{}, 0
	for _, c := range u.all {
		v, here := values[c]
		if !here || !of(c) {
			continue
		}
		weight := 1
		if c.ext == "" {
			weight = maxExts
		}
		if c.path == otherPath {
			weight *= maxExts * maxPaths * 2
		}
		if c.group == otherGroup {
			weight *= maxExts * maxPaths * maxPaths * maxGroups * 4
		}
		if count[v] += weight; count[v] > best {
			best, value, ok = count[v], v, true
		}
	}
	return value, ok
}

// uniform returns the value that all cells have; ok is false if they differ.
func uniform(values map[cell]string) (value string, ok bool) {
	for _, v := range values {
		if ok && v != value {
			return "", false
		}
		value, ok = v, true
	}
	return value, ok
}

// attribute is a setting of nginx for some files, with its directives.
type attribute struct {
	value string
	from  []*directive
}

// openFile is a kind of files that a server serves.
type openFile struct {
	s *server
	c cell
	l *location
}

// openFiles returns the kinds of files that the translated servers serve.
func (t *translator) openFiles() (all []openFile) {
	for _, s := range t.kept {
		for _, c := range t.universe.all {
			if p := s.found[c]; p.open() {
				all = append(all, openFile{s, c, p.loc})
			}
		}
	}
	return all
}

// perCell returns the value of each kind of files that is open, and the directives of each value.
// Where servers differ the first one wins, and the directives of the others become findings.
func (t *translator) perCell(get func(s *server, l *location) attribute) (map[cell]string, map[string][]*directive) {
	values, from := map[cell]string{}, map[string][]*directive{}
	known, owner := map[*location]attribute{}, map[cell]*server{}
	for _, f := range t.openFiles() {
		a, ok := known[f.l]
		if !ok {
			a = get(f.s, f.l)
			known[f.l] = a
		}
		if before, seen := values[f.c]; seen && before != a.value {
			text := "not for " + f.s.title() + ": one gateway has the same rules for all names"
			lost := a.from
			if a.value == "" {
				text, lost = "also for "+f.s.title()+": one gateway has the same rules for all names", from[before]
			}
			for _, d := range lost {
				t.say(d, text, "run a second gateway on another address where that matters")
			}
			continue
		}
		values[f.c], owner[f.c] = a.value, f.s
		if len(a.from) > 0 {
			from[a.value] = union(from[a.value], a.from...)
		}
	}
	return values, from
}

// between separates the parts of a value that is for several keys.
const between = "\x00"

// parts joins the parts of a value; the result is empty if all parts are.
func parts(list ...string) string { return strings.TrimRight(strings.Join(list, between), between) }

// part returns one of the parts of a value.
func part(value string, i int) string {
	if parts := strings.Split(value, between); i < len(parts) {
		return parts[i]
	}
	return ""
}

// writeChoices writes keys of [access] or [headers], and of its sections for selected files. A
// value has one part for each key. An empty part is written only to replace the part of an earlier
// section.
func (t *translator) writeChoices(section string, choices []choice, from map[string][]*directive, keys ...string) {
	for i, c := range choices {
		for k, key := range keys {
			value := part(c.value, k)
			if value != "" || slices.ContainsFunc(choices[:i], func(earlier choice) bool {
				return part(earlier.value, k) != "" && t.universe.overlap(earlier, c)
			}) {
				t.out.set(c.name(section), key, value, from[c.value]...)
			}
		}
	}
}

// others returns the directives of all values except one.
func others(from map[string][]*directive, value string) (found []*directive) {
	for _, other := range slices.Sorted(maps.Keys(from)) {
		if other != value {
			found = append(found, from[other]...)
		}
	}
	return found
}

// Weights of the kinds of files that no pattern names.
const maxGroups, maxPaths, maxExts = 32, 16, 48
