package migrate

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fastdfs-gateway/internal/i18n"
)

// document is the resulting configuration of the gateway.
type document struct {
	sections []*section
}

type section struct {
	name    string
	files   selector // of [access] and [headers]
	entries []entry
}

type entry struct {
	key, value string
	from       []*directive
}

// order is the order of sections, by their first word.
var order = []string{"", "gateway", "access", "headers", "error_pages", "image", "cache"}

// newDocument returns a document whose sections for all files come first.
func newDocument() *document {
	return &document{sections: []*section{{name: "access"}, {name: "headers"}}}
}

// set writes a key, with the directives that it comes from.
func (o *document) set(in, key, value string, from ...*directive) {
	o.put(in, selector{}, key, value, from...)
}

// addValue adds a value to the list of a key, with the directives that it comes from.
func (o *document) addValue(in, key, value string, from ...*directive) {
	list := strings.Split(o.get(in, key), ", ")
	o.set(in, key, strings.Join(union(without(list, func(v string) bool { return v == "" }), value), ", "), from...)
}

// get returns a value for all files.
func (o *document) get(in, key string) string {
	value, _, _ := o.find(in, selector{}, key)
	return value
}

// find returns the value for the files of a selector, and its entry; nil = no section has all of
// the files. same is false if some of them have another value.
func (o *document) find(in string, files selector, key string) (value string, found *entry, same bool) {
	same = true
	for _, s := range o.sections {
		i := slices.IndexFunc(s.entries, func(e entry) bool { return e.key == key })
		switch {
		case s.name != in || i < 0 || !s.files.meets(files):
		case s.files.covers(files):
			value, found, same = s.entries[i].value, &s.entries[i], true
		default:
			same = same && s.entries[i].value == value
		}
	}
	return value, found, same
}

// put writes a key for the files of a selector. Later sections win, and the section for all files
// is the first one. Nothing is written to [access] and [headers] if all files have the value.
func (o *document) put(in string, files selector, key, value string, from ...*directive) {
	for _, s := range o.sections {
		s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { // not in force any more
			covered := s.name == in && e.key == key && files.covers(s.files)
			if covered && in != "access" && in != "headers" {
				from = union(slices.Clone(e.from), from...)
			}
			return covered
		})
	}
	if now, e, same := o.find(in, files, key); same && now == value && (in == "access" || in == "headers") {
		if e != nil {
			e.from = union(e.from, from...)
		}
		return
	}
	s := o.section(in, files)
	s.entries = append(s.entries, entry{key: key, value: value, from: from})
}

// section returns the section of a selector: the first one of its kind for all files, else the last
// one, or a new one.
func (o *document) section(in string, files selector) *section {
	var found *section
	for _, s := range o.sections {
		if s.name == in && (found == nil || !files.all()) {
			found = s
		}
	}
	if found == nil || found.files.String() != files.String() {
		found = &section{name: in, files: files}
		o.sections = append(o.sections, found)
	}
	return found
}

// text returns the whole configuration: an include of mod_fastdfs.conf, the keys, and a list of the
// directives without a translation.
func (o *document) text(t *translator) string {
	text := "# " + i18n.Sprintf("Configuration of the gateway, translated from %s by gateway migrate.",
		oneLine(t.tree.main, 200)).In(t.Language) + "\n"
	if t.ModuleFile != "" {
		text += "\n# " + i18n.Plain("The file of the module, as it is. Keys below count before its own.").
			In(t.Language) + "\n#include " + filepath.Clean(t.ModuleFile) + "\n"
	}
	text += o.body()
	if !(Result{Findings: t.findings}).Complete() {
		text += "\n# " + i18n.Plain("Not translated:").In(t.Language) + "\n"
	}
	for _, f := range t.findings {
		if f.Kind == Untranslated {
			text += "# " + oneLine(f.In(t.Language), 1000) + "\n"
		}
	}
	return text
}

// body returns the sections in their order.
func (o *document) body() string {
	var b strings.Builder
	rank := func(s *section) int { return slices.Index(order, s.name) }
	slices.SortStableFunc(o.sections, func(a, b *section) int { return rank(a) - rank(b) })
	o.sections = slices.DeleteFunc(o.sections, func(s *section) bool { return len(s.entries) == 0 })
	for _, s := range o.sections {
		if b.WriteString("\n"); s.name != "" {
			fmt.Fprintf(&b, "[%s%s]\n", s.name, s.files)
		}
		for _, e := range s.entries {
			e.write(&b)
		}
	}
	return b.String()
}

func (e entry) write(b *strings.Builder) {
	var lines []string
	for _, d := range e.from {
		lines = union(lines, "# "+oneLine(d.place(), 400)+"\n")
	}
	value := oneLine(e.value, math.MaxInt)
	if e.key != "access_log_format" && (strings.Contains(value, "$$") || strings.Contains(value, "${")) {
		value = strings.ReplaceAll(value, "$", "$$") // no variable of the environment
	}
	b.WriteString(strings.Join(lines, "") + strings.TrimRight(oneLine(e.key, 200)+" = "+value, " ") + "\n")
}
