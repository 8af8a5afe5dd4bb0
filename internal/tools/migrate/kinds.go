package migrate

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// everybody is the value of deny that closes files to all clients. removed is the value of a field
// of CORS that files do not have.
const (
	everybody = "0.0.0.0/0, ::/0, unix:"
	removed   = "\x00"
)

// maxKinds bounds the kinds of files of one configuration.
const maxKinds = 20_000

// setting is the value of a key for the files of a location.
type setting struct {
	value string
	from  []*directive
}

// settings are the settings of a location, by section and key, such as "access deny".
type settings map[string]setting

// collectKinds collects the kinds of files that the servers distinguish: all combinations of the
// groups, store paths and extensions of their patterns.
func (t *translator) collectKinds() {
	groups, paths, exts := []string{""}, []string{""}, []string{""}
	for _, l := range blocksOf(t.servers...) {
		patterns := []pattern{l.pattern}
		for _, p := range l.parts {
			patterns = append(patterns, p.pattern)
		}
		for _, p := range patterns {
			for _, e := range p.exts {
				exts = union(exts, strings.ToLower(e))
			}
			for _, head := range p.heads {
				names := strings.Split(head, "/")
				for i, name := range names {
					upper := strings.ToUpper(name)
					switch isWhole := i > 0 && i < len(names)-1; {
					case storePath().MatchString(name), p.fold && storePath().MatchString(upper):
						paths = union(paths, upper)
					case i > 2 || !word().MatchString(name) || !isWhole && !endsInDigit().MatchString(name):
					case p.fold:
						groups = union(groups, name, strings.ToLower(name))
					default:
						groups = union(groups, name)
					}
				}
			}
		}
	}
	if groups = union(groups, t.Module.Groups...); !t.grouped {
		groups = groups[:1]
	}
	if len(groups)*len(paths)*len(exts) > maxKinds {
		return // none is open
	}
	for _, g := range groups {
		for _, p := range paths {
			for _, e := range exts {
				t.kinds = append(t.kinds, kind{g, p, e})
			}
		}
	}
}

var endsInDigit = lazy(`[g-zG-Z].*[0-9]$`)

// candidate is a location that nginx may choose for the files of a kind.
type candidate struct {
	l *location
	m match
}

// candidates returns the locations of a list that nginx may choose for the files of a kind, in the
// order in which it prefers them. The longest prefix counts, but the first expression wins over it,
// if the prefix does not exclude expressions. found is true if one matches all files.
func (t *translator) candidates(list []*location, k kind) (chosen []candidate, found bool) {
	var prefixes []candidate
	for _, l := range list { // longer prefixes are first, then expressions
		m, isPrefix := l.pattern.match(k, t.grouped), !strings.HasPrefix(l.op, "~")
		if m == none || found && isPrefix {
			continue
		}
		inner, covered := t.candidates(l.inner, k)
		for _, c := range inner {
			chosen = append(chosen, candidate{c.l, min(c.m, m)})
		}
		switch {
		case covered:
		case l.op == "":
			prefixes = append(prefixes, candidate{l, m})
		default:
			chosen = append(chosen, candidate{l, m})
		}
		if found = found || m == all; m == all && (!isPrefix || l.op != "" && len(prefixes) == 0) {
			return chosen, true
		}
	}
	return append(chosen, prefixes...), found
}

// decision describes how nginx serves the files of a kind.
type decision struct {
	by    *location
	few   bool // some files are served, at least those with an unusual name
	whole bool // all files are served
	rule  rule
}

func (d decision) open() bool { return d.by != nil && !d.rule.closes() }

// decide returns what a server does with the files of a kind. Where nginx may choose one of several
// locations, all their rules have to be the same, or the files are closed.
func (t *translator) decide(s *server, k kind) (d decision) {
	list, _ := t.candidates([]*location{s.self}, k)
	var best match
	for _, c := range list {
		switch r := c.l.rule; {
		case !r.restricts(), r.text() == d.rule.text():
		case d.rule.restricts():
			d.rule = closedBy(r.from[0])
		default:
			d.rule = r
		}
		if !c.l.serves || c.l.image {
			continue
		}
		d.whole, d.few = d.whole || c.m == all, true
		if m := min(c.m, usual); m >= some && m > best {
			d.by, best = c.l, m
		}
	}
	for _, l := range blocksOf(s) {
		for _, p := range l.parts {
			if p.pattern.match(k, t.grouped) != none {
				d.rule = closedBy(p.d)
			}
		}
	}
	return d
}

// decisionOf returns what the translated servers do with the files of a kind: that of the first one
// that serves them all. One that serves some of them counts if no other server has a check for
// them, or is left to nginx and has them.
func (t *translator) decisionOf(i int) decision {
	for _, s := range t.kept {
		d := s.decisions[i]
		if d.open() && (d.whole || !slices.ContainsFunc(t.servers, func(o *server) bool {
			e := o.decisions[i]
			return o != s && (e.rule.restricts() && e.rule.text() != d.rule.text() || o.left != nil && e.few)
		})) {
			return d
		}
	}
	for _, s := range t.servers {
		if r := s.decisions[i].rule; r.closes() {
			return decision{rule: r}
		}
	}
	return decision{rule: rule{deny: everybody}}
}

// writeKinds writes the keys of [access] and [headers] for the kinds of files that nginx serves,
// and denies all others.
func (t *translator) writeKinds() {
	wanted, ids := make([]settings, len(t.kinds)), []string{"access deny"}
	for i := range t.kinds {
		d := t.decisionOf(i)
		if wanted[i] = (settings{"access deny": {everybody, d.rule.from}}); d.open() {
			wanted[i] = t.settingsOf(d.by, d.rule)
			t.sayHeaders(d, i)
		}
	}
	general := wanted[0] // of files that no pattern names
	if general.closed() {
		general = t.settingsOf(t.base(), rule{})
		general["access deny"] = wanted[0]["access deny"]
	}
	t.writeCORS(append(wanted, general))
	for _, w := range append(wanted, general) {
		ids = union(ids, slices.Sorted(maps.Keys(w))...)
	}
	for _, id := range ids {
		t.writeSetting(id, wanted, general[id])
	}
}

// sayHeaders adds findings about servers with other headers or limits for the files of a kind.
func (t *translator) sayHeaders(d decision, i int) {
	for _, s := range t.kept {
		if e := s.decisions[i]; e.open() && s != d.by.s {
			mine, theirs := t.settingsOf(d.by, rule{}), t.settingsOf(e.by, rule{})
			if !maps.EqualFunc(mine, theirs, func(a, b setting) bool { return a.value == b.value }) {
				t.sayRow(cmp.Or(first(s.d.block, "server_name"), s.d), "server:headers")
			}
		}
	}
}

// closed reports whether settings are those of files that are not served.
func (s settings) closed() bool { return s["access deny"].value == everybody }

// writeSetting writes one key: the value for all files, and then that of each kind of files that
// has another one. Later sections win, so kinds with fewer words are first.
func (t *translator) writeSetting(id string, wanted []settings, base setting) {
	section, key, _ := strings.Cut(id, " ")
	now := make([]*entry, len(t.kinds)) // the entry in force
	put := func(s selector, value string) {
		e := t.out.put(section, s, key, value)
		for i, k := range t.kinds {
			if s.has(k) {
				now[i] = e
			}
		}
	}
	if base.value != "" && base.value != removed {
		put(selector{}, base.value)
		t.source(now[0], base)
	}
	for shape := range shapes {
		var values []string
		selectors := map[string][]selector{}
		for i, k := range t.kinds {
			v := wanted[i][id].value
			if k.shape() == shape && (id == "access deny" || !wanted[i].closed()) && now[i].get() != v {
				values = union(values, v)
				selectors[v] = addKind(selectors[v], k)
			}
		}
		for _, v := range values {
			for _, s := range joined(selectors[v]) {
				put(s, v)
			}
		}
	}
	for i, w := range wanted {
		if id == "access deny" || !w.closed() {
			t.source(now[i], w[id])
		}
	}
}

// source names the directives from which a value comes.
func (t *translator) source(e *entry, v setting) {
	if e != nil {
		e.from = union(e.from, v.from...)
	}
	if v.value != everybody {
		t.done(v.from...)
		return
	}
	for _, d := range v.from {
		t.closed[d] = union(t.closed[d], "[access"+e.files.String()+"]")
	}
}
