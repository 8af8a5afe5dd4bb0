// Package migrate translates the server blocks of nginx that serve FastDFS into the configuration
// of the gateway:
//
//	tree, err := migrate.Read("/etc/nginx/nginx.conf")
//	result := migrate.Translate(tree, migrate.Options{ModuleFile: "/etc/fdfs/mod_fastdfs.conf"})
//
// Each directive of a translated server becomes a key, needs nothing, or is a finding, by the table
// of directives.txt. A location is a selector of [headers] and [access] if its pattern is a group,
// a store path, an extension or a plain combination of these; any other one is said. A file that
// nginx serves only after a check never becomes open: where the gateway does not have the check,
// the smallest group or store path that surely contains it is denied, or the server is left to
// nginx.
package migrate

import (
	"fmt"
	"slices"
	"strings"

	"fastdfs-gateway/internal/i18n"
)

// Kind is the kind of a finding.
type Kind string

// Kinds of findings.
const (
	Mistake      Kind = "mistake"        // the text is not a configuration of nginx
	Untranslated Kind = "no translation" // the directive is lost, and clients may notice
	Note         Kind = "note"           // clients lose nothing; the operator should know
	Nothing      Kind = "nothing"        // the directive needs no translation
)

// Finding is a message about one line of nginx that has a mistake, no translation, or a translation
// with a difference.
type Finding struct {
	Kind      Kind      `json:"kind"`
	File      string    `json:"file"` // relative to the folder of the main file
	Line      int       `json:"line,omitempty"`
	Directive string    `json:"directive,omitempty"`
	Text      i18n.Text `json:"text"`
	Advice    i18n.Text `json:"advice,omitzero"`
}

// String returns the finding in English.
func (f Finding) String() string { return f.In(i18n.English) }

// In returns "file:line: kind: directive: text; advice" in a language.
func (f Finding) In(l i18n.Language) string {
	place, kind, text := f.File, i18n.Plain(string(f.Kind)), f.Text
	if f.Line > 0 {
		place += fmt.Sprintf(":%d", f.Line)
	}
	if f.Directive != "" {
		text = i18n.Sprintf("%s: %s", f.Directive, text)
	}
	if f.Advice.IsZero() {
		return i18n.Sprintf("%s: %s: %s", place, kind, text).In(l)
	}
	return i18n.Sprintf("%s: %s: %s; %s", place, kind, text, f.Advice).In(l)
}

// place returns the directive of a finding with its position.
func (f Finding) place() string { return fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Directive) }

// Module is the part of mod_fastdfs.conf that the translation needs.
type Module struct {
	Groups      []string // with store paths on this host
	GroupInURL  bool     // url_have_group_name
	HasTrackers bool
	DefaultType string // Content-Type of unknown extensions
}

// Options describe the host of a translation. The zero value has no mod_fastdfs.conf and no files
// of this host.
type Options struct {
	ModuleFile string // absolute; empty = none
	Module     Module // content of ModuleFile
	Readable   func(path string) bool
	Writable   func(path string) bool // path is a file that exists or can be created
	HasAccount func(name string) bool
	Language   i18n.Language // of the comments of the result
}

// Result is a translation.
type Result struct {
	Config   string    // empty if no server serves FastDFS, or all have to stay in nginx
	Findings []Finding // in the order of files and lines
	Nothing  []Finding // about directives that need no translation
}

// Complete reports whether all findings are notes, so that nothing is left untranslated.
func (r Result) Complete() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind != Note })
}

// Translate returns the configuration of the gateway for a configuration of nginx, and the findings
// about directives without a translation.
func Translate(tree *Tree, o Options) Result {
	_, r := translate(tree, o)
	return r
}

func translate(tree *Tree, o Options) (*translator, Result) {
	for _, ask := range []*func(string) bool{&o.Readable, &o.Writable, &o.HasAccount} {
		if *ask == nil {
			*ask = func(string) bool { return false }
		}
	}
	t := &translator{Options: o, tree: tree, findings: slices.Clone(tree.findings), handled: map[*directive]bool{},
		closed: map[*directive][]selector{}, out: newDocument()}
	t.collect()
	if len(t.kept) > 0 {
		t.main = t.kept[0]
		for _, write := range global {
			write(t)
		}
		t.sweep()
	}
	t.otherServers()
	for _, d := range t.tree.missing {
		if !strings.HasSuffix(d.arg(0), "mime.types") { // the gateway has these types
			t.sayRow(d, "include:missing")
		}
	}
	t.sort()
	if len(t.kept) == 0 {
		return t, Result{Findings: t.findings}
	}
	return t, Result{Config: t.out.text(t), Findings: t.findings, Nothing: t.nothing()}
}

// translator holds the state of one translation.
type translator struct {
	Options
	tree      *Tree
	http      []*directive // the directives of all http blocks
	all       []*server    // in the order of the configuration
	servers   []*server    // those that serve FastDFS, the default server first
	kept      []*server    // those of servers that are translated
	main      *server      // the first of kept, whose keys count
	names     names
	unlimited string // networks without a limit of connections
	closed    map[*directive][]selector
	handled   map[*directive]bool
	findings  []Finding
	out       *document
}

// addFinding marks a directive as handled and adds a finding. Findings about the same directive are
// merged.
func (t *translator) addFinding(kind Kind, d *directive, text, advice i18n.Text) {
	f := Finding{Kind: kind, File: d.file, Line: d.line, Directive: d.String(), Text: text, Advice: advice}
	t.handled[d] = true
	for i := range t.findings {
		g := &t.findings[i]
		if g.File == f.File && g.Line == f.Line && g.Directive == f.Directive {
			if !strings.Contains(g.Text.String(), text.String()) {
				g.Text = i18n.Sprintf("%s; %s", g.Text, text)
			}
			if kind == Untranslated {
				g.Kind = kind
			}
			return
		}
	}
	t.findings = append(t.findings, f)
}

// say adds a finding for a directive that has no translation.
func (t *translator) say(d *directive, text, advice i18n.Text) {
	t.addFinding(Untranslated, d, text, advice)
}

// sayRow adds the finding of a row of directives.txt.
func (t *translator) sayRow(d *directive, name string) {
	r := rowOf(name)
	kind := Untranslated
	if r.kind == "note" {
		kind = Note
	}
	t.addFinding(kind, d, i18n.Plain(r.text), i18n.Plain(r.advice))
}

// ofFile returns a directive for findings about the whole configuration.
func (t *translator) ofFile() *directive { return &directive{file: t.tree.main} }

// done marks directives as handled, also those in their blocks.
func (t *translator) done(list ...*directive) {
	for _, d := range list {
		t.handled[d] = true
		t.done(d.block...)
	}
}

// sort sorts the findings by files, the main file first, and by lines.
func (t *translator) sort() {
	order := map[string]int{t.tree.main: -1}
	for i, f := range t.findings {
		if _, ok := order[f.File]; !ok {
			order[f.File] = i
		}
	}
	slices.SortStableFunc(t.findings, func(a, b Finding) int {
		if a.File != b.File {
			return order[a.File] - order[b.File]
		}
		return a.Line - b.Line
	})
}
