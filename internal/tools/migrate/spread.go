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

// spread returns few choices that result in the values of the cells: first those for all
// extensions, then those for some; for all places, for store paths of all groups, for groups, and
// for store paths of one group. Later choices win. Cells without a value get one of their
// neighbours, but no denial.
func (u universe) spread(values map[cell]string) (choices []choice) {
	got := map[cell]string{}
	for _, e := range u.exts {
		from := len(choices)
		pick := func(group, path string, places ...string) {
			v, ok := u.pick(values, got, group, path, e)
			if !ok {
				return
			}
			i := slices.IndexFunc(choices[from:], func(c choice) bool {
				return c.value == v && len(c.places) > 0 && len(places) > 0 && level(c.places[0]) == level(places[0])
			})
			if i >= 0 {
				choices[from+i].places = append(choices[from+i].places, places...)
			} else {
				choices = append(choices, choice{places: places, value: v})
			}
			for _, g := range u.groups {
				for _, p := range u.paths {
					for _, ext := range u.exts {
						if (group == "" || g == group) && (path == "" || p == path) && (e == "" || ext == e) {
							got[cell{g, p, ext}] = v
						}
					}
				}
			}
		}
		pick("", "")
		for _, p := range u.paths[:len(u.paths)-1] {
			pick("", p, p+"/")
		}
		for _, g := range u.groups[:len(u.groups)-1] {
			pick(g, "", g+"/")
		}
		for _, g := range u.groups[:len(u.groups)-1] {
			for _, p := range u.paths[:len(u.paths)-1] {
				pick(g, p, g+"/"+p+"/")
			}
		}
		if e != "" {
			choices = joinExts(choices, from, e)
		}
	}
	return choices
}

// joinExts adds an extension to the choices from an index on, or to equal ones before it.
func joinExts(choices []choice, from int, ext string) []choice {
	kept := choices[:from:from]
	for _, c := range choices[from:] {
		i := slices.IndexFunc(kept, func(o choice) bool {
			return len(o.exts) > 0 && o.value == c.value && slices.Equal(o.places, c.places)
		})
		if i >= 0 {
			kept[i].exts = append(kept[i].exts, ext)
		} else {
			c.exts = []string{ext}
			kept = append(kept, c)
		}
	}
	return kept
}

// level tells a group, a store path and a store path of a group apart.
func level(place string) int {
	if storePath.MatchString(strings.TrimSuffix(place, "/")) {
		return 0
	}
	return strings.Count(place, "/")
}

// pick returns the value that a choice for a group, a store path and an extension has to have: that
// of files that no pattern names, else the one that all others have. ok is false if the choice
// changes nothing.
func (u universe) pick(values, got map[cell]string, group, path, ext string) (value string, ok bool) {
	general, differ, known := false, false, false
	for _, g := range slices.Backward(u.groups) {
		for _, p := range slices.Backward(u.paths) {
			v, has := values[cell{g, p, ext}]
			if !has || group != "" && g != group || path != "" && p != path {
				continue
			}
			general = general || (group != "" || g == otherGroup) && (path != "" || p == otherPath)
			if !known {
				value, known = v, true
			}
			differ = differ || v != value
			ok = ok || v == value && got[cell{g, p, ext}] != v
		}
	}
	return value, ok && (general || !differ && !strings.HasSuffix(value, everybody))
}

// commonest returns the value that most cells have, where those that no pattern names count first.
func (u universe) commonest(values map[cell]string) (value string) {
	count, best := map[string]int{}, 0
	for _, c := range u.all {
		v, here := values[c]
		if !here {
			continue
		}
		if count[v]++; c.ext == "" {
			count[v] += maxCells
		}
		if count[v] > best {
			best, value = count[v], v
		}
	}
	return value
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
