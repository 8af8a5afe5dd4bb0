// Package migrate translates the server blocks of nginx that serve FastDFS into the configuration
// of the gateway:
//
//	tree, err := migrate.Read("/etc/nginx/nginx.conf")
//	result := migrate.Translate(tree, migrate.Options{ModuleFile: "/etc/fdfs/mod_fastdfs.conf"})
//
// The translation follows nginx, not the text of patterns: it chooses the location of sample file
// ids as nginx does, and compares what is in force there. A directive in a translated block is
// translated, needs nothing, or is a finding. A location with a check that the gateway does not
// have is never opened.
package migrate

import (
	"fmt"
	"slices"
	"strings"
)

// Kind of a finding.
type Kind string

// The kinds.
const (
	Mistake      Kind = "mistake"        // the text is no configuration of nginx
	Untranslated Kind = "no translation" // clients may notice that it is gone
	Note         Kind = "note"           // clients keep what they had; the operator should know
)

// Finding is one line of nginx that is not simply translated.
type Finding struct {
	Kind      Kind   `json:"kind"`
	File      string `json:"file"` // relative to the folder of the main file
	Line      int    `json:"line,omitempty"`
	Directive string `json:"directive,omitempty"`
	Text      string `json:"text"`
	Advice    string `json:"advice,omitempty"`
}

// String is "file:line: kind: directive: text; advice".
func (f Finding) String() string {
	place := f.File
	if f.Line > 0 {
		place = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	parts := []string{place, string(f.Kind)}
	if f.Directive != "" {
		parts = append(parts, f.Directive)
	}
	text := strings.Join(append(parts, f.Text), ": ")
	if f.Advice != "" {
		text += "; " + f.Advice
	}
	return text
}

// Module is the part of mod_fastdfs.conf that the translation needs.
type Module struct {
	Groups      []string // with store paths on this host
	GroupName   string   // the global group_name
	StorePaths  int      // most store paths of a group
	GroupInURL  bool     // url_have_group_name
	HasTrackers bool
	DefaultType string // Content-Type of unknown extensions
}

// Options are the surroundings of a translation. The zero value knows no mod_fastdfs.conf and no
// file of this host.
type Options struct {
	ModuleFile string            // absolute; empty = none
	Module     Module            // its content
	Types      map[string]string // media types by extension that the gateway knows by itself
	Readable   func(path string) bool
	Writable   func(path string) bool // a file that exists or can be made
	HasAccount func(name string) bool
	Nearest    func(name string, candidates []string) (string, bool) // for hints
}

// Result is a translation.
type Result struct {
	Config   string    // empty: nothing in it serves FastDFS, or all of it has to stay
	Findings []Finding // in the order of files and lines
}

// Complete reports whether all is translated.
func (r Result) Complete() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind != Note })
}

// Translate translates a configuration.
func Translate(tree *Tree, o Options) Result {
	for _, ask := range []*func(string) bool{&o.Readable, &o.Writable, &o.HasAccount} {
		if *ask == nil {
			*ask = func(string) bool { return false }
		}
	}
	t := &translator{Options: o, tree: tree, findings: slices.Clone(tree.findings), handled: map[*directive]bool{},
		out: &document{}}
	t.collect()
	t.sample()
	t.classify()
	if len(t.servers) == 0 {
		t.nothingToServe()
		return Result{Findings: t.sorted()}
	}
	t.translateStore()
	t.translateListen()
	t.translateProcess()
	t.translateAccess()
	t.translateLimits()
	t.translateHeaders()
	t.translateTypes()
	t.translateLogs()
	t.translateCache()
	t.translatePages()
	t.otherLocations()
	t.otherServers()
	t.sweep()
	findings := t.sorted()
	return Result{Config: t.out.text(t, findings), Findings: findings}
}

// translator is one translation.
type translator struct {
	Options
	tree        *Tree
	http        []*directive // the directives of all http blocks
	all         []*server    // in the order of the configuration
	servers     []*server    // those that are translated
	universe    universe
	redirectors []*server // that send clients to https, and whose addresses are the gateway's
	form        form
	handled     map[*directive]bool
	findings    []Finding
	out         *document
}

// add adds a finding once.
func (t *translator) add(kind Kind, d *directive, line int, text, advice string) {
	if l := d.location; l != nil && l.line != line {
		text += fmt.Sprintf(" (%s, line %d)", oneLine(l.String(), 60), l.line)
	}
	f := Finding{Kind: kind, File: d.file, Line: line, Directive: d.String(), Text: text, Advice: advice}
	t.handled[d] = true
	same := func(g Finding) bool { return g.File == f.File && g.Line == f.Line && g.Directive == f.Directive }
	if i := slices.IndexFunc(t.findings, same); i < 0 {
		t.findings = append(t.findings, f)
	} else if t.findings[i].Text != text && !strings.Contains(t.findings[i].Text, text) {
		t.findings[i].Text += "; " + text
		if kind == Untranslated {
			t.findings[i].Kind = kind
		}
	}
}

// say adds a finding for a directive that has no translation.
func (t *translator) say(d *directive, text, advice string) {
	t.add(Untranslated, d, d.line, text, advice)
}

// note adds a finding for a directive that the gateway does otherwise.
func (t *translator) note(d *directive, text, advice string) { t.add(Note, d, d.line, text, advice) }

// sayFile adds a finding about the whole configuration.
func (t *translator) sayFile(text, advice string) {
	t.findings = append(t.findings, Finding{Kind: Untranslated, File: t.tree.main, Text: text, Advice: advice})
}

// unhandled returns the directives of a block with one of the names that nothing has dealt with.
func (t *translator) unhandled(block []*directive, names ...string) []*directive {
	return slices.DeleteFunc(named(block, names...), func(d *directive) bool { return t.handled[d] })
}

// done marks directives that are dealt with.
func (t *translator) done(list ...*directive) {
	for _, d := range list {
		t.handled[d] = true
	}
}

// doneAll marks directives with their blocks.
func (t *translator) doneAll(list ...*directive) {
	for _, d := range list {
		t.done(d)
		t.doneAll(d.block...)
	}
}

// sorted returns the findings in the order of files and lines.
func (t *translator) sorted() []Finding {
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
	return t.findings
}

// nothingToServe names a configuration in which no server is translated.
func (t *translator) nothingToServe() {
	t.adviseAll(t.tree.root)
	if slices.ContainsFunc(t.all, func(s *server) bool { return s.left != nil }) {
		return
	}
	t.sayFile("no server block serves FastDFS: none has ngx_fastdfs_module, or passes a path of a group or of M00 on",
		"name the nginx.conf of a host that serves files")
}
