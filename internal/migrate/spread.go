package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// choice is a value for the files that selectors name; without selectors it is for all files.
type choice struct {
	selectors []string // group1/, group1/M00/, jpg
	value     string
}

// name is the name of a section with the selectors.
func (c choice) name(section string) string {
	return strings.Join(append([]string{section}, c.selectors...), " ")
}

// spread describes the values of cells by few sections, of which later ones win: one for all files,
// then groups and store paths, then extensions. Cells without a value do not matter.
func (u universe) spread(values map[cell]string) (choices []choice) {
	base := map[cell]string{} // by group and store path
	for _, g := range u.groups {
		for _, p := range u.paths {
			v, ok := u.commonest(values, func(c cell) bool { return c.group == g && c.path == p })
			_, general := values[cell{g, p, ""}]
			if !general && (g == otherGroup || p == otherPath) { // some extensions say nothing about all files
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
	if len(base) == 0 {
		return nil
	}
	choices = u.byPlace(base, nil, nil)
	var byExt []choice
	for _, e := range u.exts[1:] {
		here, same := map[cell]string{}, true
		for k, v := range base {
			if now, ok := values[cell{k.group, k.path, e}]; ok {
				here[k] = now
				same = same && now == v
			}
		}
		if !same {
			byExt = append(byExt, u.byPlace(here, base, []string{e})...)
		}
	}
	return append(choices, joinExts(byExt)...)
}

// byPlace returns the choices for extensions, or for all: one if all places have the same value, or
// one for the groups that no pattern names, and those of the named groups that differ from it.
// Groups that are as in base need none, unless a choice for all groups takes their value away.
func (u universe) byPlace(values, base map[cell]string, exts []string) (choices []choice) {
	if uniform(values) {
		for _, v := range values {
			return []choice{{exts, v}}
		}
	}
	split, of := u.perGroup(values), u.perGroup(base)
	others := split[len(split)-1]
	general, all := u.commonest(others, func(cell) bool { return true })
	if all = all && (base == nil || !maps.Equal(others, of[len(of)-1])); all {
		choices = append(choices, choice{exts, general})
	}
	for i, inGroup := range split[:len(split)-1] {
		asAll := all
		for _, p := range u.paths {
			v, ok := others[cell{otherGroup, p, ""}]
			if own, here := inGroup[cell{u.groups[i], p, ""}]; here {
				asAll = asAll && (ok && own == v || !ok && own == general)
			}
		}
		if asAll || !all && base != nil && maps.Equal(inGroup, of[i]) {
			clear(inGroup)
		}
	}
	if !all {
		clear(others)
	}
	skip := func(v string) bool { return all && v == general && uniform(others) }
	return append(choices, u.byGroup(split, exts, skip)...)
}

// perGroup splits cells by group, in the order of groups.
func (u universe) perGroup(values map[cell]string) []map[cell]string {
	split := make([]map[cell]string, len(u.groups))
	for i, g := range u.groups {
		split[i] = map[cell]string{}
		for k, v := range values {
			if k.group == g {
				split[i][k] = v
			}
		}
	}
	return split
}

// commonest returns the value of the cells that no pattern names, of those the one for any group
// before the one for any store path and any extension, or the value that most cells have.
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

func uniform(values map[cell]string) bool {
	first, any := "", false
	for _, v := range values {
		if any && v != first {
			return false
		}
		first, any = v, true
	}
	return true
}

// byGroup returns one choice for each value, with the groups that have it, and after them those of
// the store paths that differ from their group. Groups with a value to skip are left out. Groups
// that no pattern names have a choice only for their store paths.
func (u universe) byGroup(perGroup []map[cell]string, exts []string, skip func(value string) bool) []choice {
	var groups, paths []choice
	add := func(to *[]choice, selector, value string) {
		i := slices.IndexFunc(*to, func(c choice) bool { return c.value == value })
		if i < 0 {
			*to = append(*to, choice{value: value})
			i = len(*to) - 1
		}
		(*to)[i].selectors = append((*to)[i].selectors, selector)
	}
	for i, inGroup := range perGroup {
		common, ok := u.commonest(inGroup, func(cell) bool { return true })
		if !ok {
			continue
		}
		g, place := u.groups[i], ""
		if g != otherGroup {
			if place = g + "/"; !skip(common) {
				add(&groups, place, common)
			}
		}
		for _, p := range u.paths {
			if v, ok := inGroup[cell{g, p, ""}]; ok && v != common {
				add(&paths, fmt.Sprintf("%sM%02X/", place, p), v)
			}
		}
	}
	all := append(groups, paths...)
	for i := range all {
		all[i].selectors = append(all[i].selectors, exts...)
	}
	return all
}

// overlaps reports whether a file can have both selections.
func (c choice) overlaps(other choice) bool {
	places, exts := split(c.selectors)
	otherPlaces, otherExts := split(other.selectors)
	meet := func(a, b []string, same func(x, y string) bool) bool {
		return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(x string) bool {
			return slices.ContainsFunc(b, func(y string) bool { return same(x, y) })
		})
	}
	return meet(places, otherPlaces, func(x, y string) bool {
		return strings.HasPrefix(x, y) || strings.HasPrefix(y,
			x)
	}) &&
		meet(exts, otherExts, func(x, y string) bool { return x == y })
}

// split separates places from extensions.
func split(selectors []string) (places, exts []string) {
	for _, s := range selectors {
		if strings.HasSuffix(s, "/") {
			places = append(places, s)
		} else {
			exts = append(exts, s)
		}
	}
	return places, exts
}

// joinExts joins the choices that differ in their extension only.
func joinExts(list []choice) (joined []choice) {
	key := func(c choice) string { return strings.Join(c.selectors[:len(c.selectors)-1], " ") + "=" + c.value }
	where := map[string]int{}
	for _, c := range list {
		if i, ok := where[key(c)]; ok {
			joined[i].selectors = append(joined[i].selectors, c.selectors[len(c.selectors)-1])
			continue
		}
		where[key(c)] = len(joined)
		joined = append(joined, c)
	}
	return joined
}

// attribute is something that nginx does with some files, with the directives that say so.
type attribute struct {
	value string
	from  []*directive
}

// perCell returns the value of each kind of files that is open. Where servers differ the first one
// counts, and the directives of the others are findings.
func (t *translator) perCell(get func(s *server, o outcome) attribute) (map[cell]string, map[string][]*directive) {
	return t.perCellWith(get, "")
}

// perCellWith is perCell with a value that gives way to any other.
func (t *translator) perCellWith(get func(s *server, o outcome) attribute,
	weak string) (map[cell]string, map[string][]*directive) {
	values, from := map[cell]string{}, map[string][]*directive{}
	first := map[cell]*server{}
	for _, s := range t.servers {
		known := map[*location]attribute{}
		for _, c := range t.universe.all {
			o := s.cells[c]
			if !o.open() || c.path == otherPath && weak == "" {
				continue // without a rule of access, further store paths are as those that patterns name
			}
			a, ok := known[o.loc]
			if !ok {
				a = get(s, o)
				known[o.loc] = a
			}
			before, seen := values[c]
			switch {
			case !seen:
				values[c], first[c] = a.value, s
			case before != a.value && before == weak && weak != "":
				t.sayServers(s, first[c], a.from, attribute{})
				values[c], first[c] = a.value, s
			case before != a.value:
				t.sayServers(first[c], s, from[before], a)
				continue
			}
			for _, d := range a.from {
				if !slices.Contains(from[a.value], d) {
					from[a.value] = append(from[a.value], d)
				}
			}
		}
	}
	return values, from
}

// sayServers names a difference between two servers, which one gateway does not make.
func (t *translator) sayServers(first, second *server, kept []*directive, lost attribute) {
	const advice = "run a second gateway on another address for one of them where that matters"
	for _, d := range lost.from {
		t.say(d, "not for "+second.title()+": one gateway has the same rules for all names, those of "+first.title(),
			advice)
	}
	if len(lost.from) == 0 {
		for _, d := range kept {
			t.say(d, "also for "+second.title()+", which does not have it: one gateway has the same rules for all "+
				"names", advice)
		}
	}
}
