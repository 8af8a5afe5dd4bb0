package migrate

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fastdfs-gateway/internal/i18n"
)

// selector is a set of files, as the words of [access] and [headers] select them: those in one of
// the places with one of the extensions. The zero value selects all files.
type selector struct {
	places []string // group1/, group1/M00/, or M00/ of every group
	exts   []string // lower case
	shape  int      // which of group, store path and extension it names
}

// String returns the words, each with a blank in front.
func (s selector) String() (text string) {
	for _, w := range slices.Concat(s.places, s.exts) {
		text += " " + w
	}
	return text
}

// has reports whether all files of a kind are selected.
func (s selector) has(k kind) bool {
	group, path := k.group+"/", k.path+"/"
	isPlace := func(p string) bool { return p != "/" && (p == group || p == path || p == group+path) }
	return (len(s.places) == 0 || slices.ContainsFunc(s.places, isPlace)) &&
		(len(s.exts) == 0 || k.ext != "" && slices.Contains(s.exts, k.ext))
}

const shapes = 8

// shape returns the shape of the selector of a kind: those with fewer words are first.
func (k kind) shape() int {
	shape := 0
	for i, w := range []string{k.group, k.path, k.ext} {
		if w != "" {
			shape |= 1 << i
		}
	}
	return []int{0, 1, 2, 4, 3, 5, 6, 7}[shape]
}

// addKind adds a kind to a list of selectors of its shape, with one place each.
func addKind(list []selector, k kind) []selector {
	one := selector{shape: k.shape()}
	if place := strings.TrimPrefix(k.group+"/"+k.path+"/", "/"); place != "/" {
		one.places = []string{strings.Replace(place, "//", "/", 1)}
	}
	if k.ext != "" {
		one.exts = []string{k.ext}
	}
	for i, s := range list {
		if slices.Equal(s.places, one.places) {
			list[i].exts = append(list[i].exts, one.exts...)
			return list
		}
	}
	return append(list, one)
}

// maxPlaces bounds the places of one selector, which has at most 256 words.
const maxPlaces = 200

// joined joins the selectors that have the same extensions.
func joined(list []selector) (all []selector) {
	for _, s := range list {
		i := slices.IndexFunc(all, func(a selector) bool {
			return slices.Equal(a.exts, s.exts) && len(a.places) < maxPlaces
		})
		if i < 0 {
			all = append(all, s)
			continue
		}
		all[i].places = append(all[i].places, s.places...)
	}
	return all
}

// document is the resulting configuration of the gateway.
type document struct {
	sections []*section
}

type section struct {
	name    string
	files   selector // of [access] and [headers]
	entries []*entry
}

type entry struct {
	key, value string
	files      selector
	from       []*directive
}

// get returns the value; nil has none.
func (e *entry) get() string {
	if e == nil {
		return ""
	}
	return e.value
}

// order is the order of sections.
var order = []string{"", "gateway", "access", "headers", "error_pages", "image", "cache"}

// get returns a value for all files.
func (o *document) get(in, key string) string { return o.find(in, selector{}, key).get() }

func (o *document) find(in string, files selector, key string) *entry {
	for _, s := range o.sections {
		i := slices.IndexFunc(s.entries, func(e *entry) bool { return e.key == key })
		if s.name == in && i >= 0 && s.files.String() == files.String() {
			return s.entries[i]
		}
	}
	return nil
}

// put writes a key for the files of a selector.
func (o *document) put(in string, files selector, key, value string) *entry {
	e := o.find(in, files, key)
	if e == nil {
		e = &entry{key: key, files: files}
		isSame := func(s *section) bool { return s.name == in && s.files.String() == files.String() }
		i := slices.IndexFunc(o.sections, isSame)
		if i < 0 {
			i, o.sections = len(o.sections), append(o.sections, &section{name: in, files: files})
		}
		o.sections[i].entries = append(o.sections[i].entries, e)
	}
	e.value = value
	return e
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
	rank := func(s *section) int { return slices.Index(order, s.name)*shapes + s.files.shape }
	slices.SortStableFunc(o.sections, func(a, b *section) int { return rank(a) - rank(b) })
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

// write writes the key with the lines of nginx that it comes from.
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
