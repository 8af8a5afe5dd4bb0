package migrate

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
)

// document is the resulting configuration of the gateway.
type document struct {
	sections []*section
}

type section struct {
	name    string
	entries []entry
}

type entry struct {
	key, value string
	from       []*directive
	off        string // reason for which the entry is a comment; empty = it is in force
}

// order is the order of sections; sections with selectors follow [access] and [headers].
var order = []string{"", "gateway", "access", "headers", "error_pages", "image", "cache"}

func (o *document) section(name string) *section {
	for _, s := range o.sections {
		if s.name == name {
			return s
		}
	}
	s := &section{name: name}
	o.sections = append(o.sections, s)
	return s
}

// set writes a key, with the directives that it comes from.
func (o *document) set(in, key, value string, from ...*directive) {
	s := o.section(in)
	if i := slices.IndexFunc(s.entries, func(e entry) bool { return e.key == key }); i >= 0 {
		s.entries = slices.Delete(s.entries, i, i+1)
	}
	s.entries = append(s.entries, entry{key: key, value: value, from: from})
}

// setOff writes a key as a comment, with the reason.
func (o *document) setOff(in, key, value, reason string, from ...*directive) {
	o.section(in).entries = append(o.section(in).entries, entry{key, value, from, reason})
}

// text returns the whole configuration: an include of mod_fastdfs.conf, the keys, and a list of the
// directives without a translation.
func (o *document) text(t *translator, findings []Finding) string {
	var b strings.Builder
	name := oneLine(t.tree.main, 200)
	fmt.Fprintf(&b, "# Configuration of the gateway, translated from %s by gateway migrate.\n", name)
	if t.ModuleFile != "" {
		fmt.Fprintf(&b, "\n# The file of the module, as it is. Keys below count before its own.\n#include %s\n",
			filepath.Clean(t.ModuleFile))
	}
	slices.SortStableFunc(o.sections, func(a, b *section) int { return rank(a.name) - rank(b.name) })
	for _, s := range o.sections {
		if len(s.entries) == 0 {
			continue
		}
		if b.WriteString("\n"); s.name != "" {
			fmt.Fprintf(&b, "[%s]\n", s.name)
		}
		for _, e := range s.entries {
			e.write(&b)
		}
	}
	list := slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Kind != Untranslated })
	if len(list) > 0 {
		b.WriteString("\n# Not translated:\n")
	}
	for _, f := range list {
		fmt.Fprintf(&b, "# %s\n", oneLine(f.String(), 1000))
	}
	return b.String()
}

// rank returns the position of a section. Later sections win, so sections for fewer files come
// later: first store paths of all groups, then groups, store paths of one group, and extensions.
func rank(name string) int {
	words := strings.Fields(name)
	if len(words) == 0 {
		return 0
	}
	place := 8 * slices.Index(order, words[0])
	if last := words[len(words)-1]; len(words) > 1 && !strings.HasSuffix(last, "/") {
		place += 4
	}
	switch first := words[min(1, len(words)-1)]; {
	case strings.Count(first, "/") > 1:
		place += 3
	case storePath.MatchString(strings.TrimSuffix(first, "/")):
		place++
	case strings.HasSuffix(first, "/"):
		place += 2
	}
	return place
}

func (e entry) write(b *strings.Builder) {
	seen := map[string]bool{}
	for _, d := range e.from {
		if line := fmt.Sprintf("# %s\n", oneLine(d.place(), 400)); !seen[line] {
			seen[line] = true
			b.WriteString(line)
		}
	}
	off := ""
	if e.off != "" {
		fmt.Fprintf(b, "# %s\n", oneLine(e.off, 400))
		off = "# "
	}
	b.WriteString(strings.TrimRight(fmt.Sprintf("%s%s = %s", off, oneLine(e.key, 200), escape(e)), " ") + "\n")
}

// escape returns the value without variables of the environment: each $ is doubled if the value has
// ${ or $$. Variables of the log have another form.
func escape(e entry) string {
	value := oneLine(e.value, math.MaxInt)
	if e.key == "access_log_format" {
		return value
	}
	if strings.Contains(value, "$$") || strings.Contains(value, "${") {
		return strings.ReplaceAll(value, "$", "$$")
	}
	return value
}

// get returns the value of a key that is in force.
func (o *document) get(in, key string) (value string) {
	for _, e := range o.section(in).entries {
		if e.key == key && e.off == "" {
			value = e.value
		}
	}
	return value
}
