package migrate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"
	"golang.org/x/sys/unix"
)

// Limits of a configuration of nginx: a wrong include must not fill the memory.
const (
	maxFileBytes  = 4 << 20
	maxFiles      = 500
	maxDirectives = 100_000
	maxDepth      = 64
)

// directive is one directive of nginx with its position.
type directive struct {
	file    string // as findings show it
	line    int
	name    string
	args    []string
	block   []*directive
	isBlock bool

	location *directive // the location around the directive; nil = none
}

// String returns the directive on one line, without its block.
func (d *directive) String() string {
	text := strings.Join(append([]string{d.name}, d.args...), " ")
	return oneLine(text, 120)
}

// place returns the directive with its position.
func (d *directive) place() string { return fmt.Sprintf("%s:%d %s", d.file, d.line, d) }

// arg returns argument n, or an empty string.
func (d *directive) arg(n int) string {
	if n >= 0 && n < len(d.args) {
		return d.args[n]
	}
	return ""
}

// has reports whether arg is one of the arguments.
func (d *directive) has(arg string) bool { return slices.Contains(d.args, arg) }

// oneLine makes a text printable on one line of bounded length.
func oneLine(text string, limit int) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == ' ' }), " ")
	if runes := []rune(text); len(runes) > limit {
		text = string(runes[:limit-3]) + "..."
	}
	return text
}

// Tree is a configuration of nginx with its includes.
type Tree struct {
	main     string // name of the main file, as findings show it
	dir      string // folder of the main file
	root     []*directive
	missing  []*directive        // include directives of missing files
	texts    map[string][]string // lines by file, to find the lines of arguments
	findings []Finding           // typographic quotes, which nginx accepts as letters
}

// MistakesError is the error of Read for a text that is not a configuration of nginx.
type MistakesError []Finding

func (e MistakesError) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// reader reads one configuration.
type reader struct {
	path    string
	dir     string
	before  string // text before a bare file that opens the blocks around it
	after   string
	texts   map[string]string // by path
	missing map[string]bool
	count   int
}

// Read parses a configuration with its includes. The file is a whole nginx.conf, or a bare one: a
// file of conf.d, which has no http block, or a list of locations. Names of includes are relative
// to the folder of the main file; for a bare file also to the folder above. The error is a
// MistakesError if the text is wrong.
func Read(path string) (*Tree, error) {
	r := &reader{path: path, dir: filepath.Dir(path), texts: map[string]string{}, missing: map[string]bool{}}
	text, err := regular(path)
	if err != nil {
		return nil, err
	}
	r.texts[path] = text
	r.before, r.after = blocksAround(text)
	payload, err := crossplane.Parse(path, &crossplane.ParseOptions{
		Open: r.open, Glob: r.glob, DirectiveSources: catalogs})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	found := r.mistakes(payload)
	if slices.ContainsFunc(found, func(f Finding) bool { return f.Kind == Mistake }) {
		return nil, MistakesError(found)
	}
	tree, err := r.tree(payload)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	tree.findings = found
	return tree, nil
}

// regular returns the text of a regular file. The open of a pipe does not wait for a writer.
func regular(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read from: nothing is lost
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file", path)
	}
	return read(f)
}

// read returns a whole file.
func read(f *os.File) (string, error) {
	path := f.Name()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	switch {
	case err != nil:
		return "", err
	case len(data) > maxFileBytes:
		return "", fmt.Errorf("%s has more than %d bytes", path, maxFileBytes)
	case bytes.IndexByte(data, 0) >= 0:
		return "", fmt.Errorf("%s holds NUL bytes: save it as UTF-8 or plain ASCII text", path)
	}
	return withoutLua(strings.TrimPrefix(string(data), "\ufeff")), nil
}

// open opens a file for crossplane. An include that cannot be read is an empty file here, and
// becomes a finding later.
func (r *reader) open(path string) (io.ReadCloser, error) {
	if _, known := r.texts[path]; !known {
		if r.count++; r.count > maxFiles {
			return nil, fmt.Errorf("more than %d files", maxFiles)
		}
		text, err := regular(path)
		if above, ok := r.above(path); err != nil && ok {
			text, err = regular(above)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		r.texts[path], r.missing[path] = text, err != nil
	}
	text := r.texts[path]
	if path == r.path {
		text = r.before + text + r.after
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

func (r *reader) glob(pattern string) ([]string, error) {
	found, err := filepath.Glob(pattern)
	if above, ok := r.above(pattern); len(found) == 0 && ok {
		return filepath.Glob(above)
	}
	return found, err
}

// above returns the path of an include of a bare file relative to the folder above: nginx.conf,
// which includes the files of conf.d, is there.
func (r *reader) above(path string) (string, bool) {
	rel, err := filepath.Rel(r.dir, path)
	return filepath.Join(r.dir, "..", rel), r.before != "" && err == nil && !strings.HasPrefix(rel, "..")
}

var (
	comment     = regexp.MustCompile(`(?m)(^|[\s;{}])#.*$`)
	mainBlock   = regexp.MustCompile(`(?m)(^|[;{}\s])(http|events|stream)\s*\{`)
	serverBlock = regexp.MustCompile(
		`(?m)(^|[;}\s])(server\s*\{|upstream\s+\S+\s*\{|(log_format|limit_req_zone|map|geo)\s)`)
	locBlock = regexp.MustCompile(`(?m)(^|[;}\s])location[\s~=^]+[^;]*\{`)
)

// blocksAround returns the text that opens and closes the blocks around a bare file, as nginx.conf
// does. before has no line break, so line numbers stay.
func blocksAround(text string) (before, after string) {
	text = comment.ReplaceAllString(text, "$1")
	switch {
	case mainBlock.MatchString(text):
		return "", ""
	case serverBlock.MatchString(text):
		return "http { ", "\n}"
	case locBlock.MatchString(text):
		return "http { server { ", "\n}}"
	}
	return "", ""
}

// shown returns a path as findings show it: relative to the folder of the main file if it is below.
func (r *reader) shown(path string) string {
	if rel, err := filepath.Rel(r.dir, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

// mistakes returns the errors of the parser, and characters that an input method put in place of
// those of nginx.
func (r *reader) mistakes(payload *crossplane.Payload) []Finding {
	var all []Finding
	for _, e := range payload.Errors {
		f := Finding{Kind: Mistake, File: r.shown(e.File), Text: e.Error.Error()}
		if e.Line != nil {
			f.Line = *e.Line
		}
		var parse *crossplane.ParseError
		if errors.As(e.Error, &parse) {
			f.Text = parse.What
			if parse.Line != nil {
				f.Line = *parse.Line
			}
		}
		if last := strings.Count(r.texts[e.File], "\n") + 1; f.Line > last {
			f.Line = last // in the blocks around a bare file
		}
		all = append(all, f)
	}
	for path, text := range r.texts {
		all = append(all, wideCharacters(r.shown(path), text)...)
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line) })
	seen := map[string]bool{} // files with a mistake: blocks after it may seem to be in the wrong place
	return slices.DeleteFunc(all, func(f Finding) bool {
		const place, end = "directive is not allowed here", "unexpected end of file"
		follows := seen[f.File] && (strings.HasSuffix(f.Text, place) || strings.HasPrefix(f.Text, end))
		seen[f.File] = seen[f.File] || f.Kind == Mistake
		return follows
	})
}

// tree joins the files into one tree of directives.
func (r *reader) tree(payload *crossplane.Payload) (*Tree, error) {
	t := &Tree{main: r.shown(r.path), dir: r.dir, texts: map[string][]string{}}
	for path, text := range r.texts {
		t.texts[r.shown(path)] = strings.Split(text, "\n")
	}
	left := maxDirectives
	var convert func(file int, list crossplane.Directives, in *directive, depth int) ([]*directive, error)
	convert = func(file int, list crossplane.Directives, in *directive, depth int) (all []*directive, err error) {
		if depth > maxDepth {
			return nil, fmt.Errorf("blocks and includes are nested more than %d times", maxDepth)
		}
		for _, c := range list {
			if left--; left < 0 {
				return nil, fmt.Errorf("more than %d directives", maxDirectives)
			}
			d := &directive{file: r.shown(payload.Config[file].File), line: c.Line, name: c.Directive, args: c.Args,
				isBlock: c.Block != nil, location: in}
			around := in
			if d.name == "location" {
				around = d
			}
			if d.block, err = convert(file, c.Block, around, depth+1); err != nil {
				return nil, err
			}
			if c.Directive != "include" || c.IsMapBlockParameter {
				all = append(all, d)
				continue
			}
			for _, i := range c.Includes {
				inner, err := convert(i, payload.Config[i].Parsed, in, depth+1)
				if err != nil {
					return nil, err
				}
				all = append(all, inner...)
				if r.missing[payload.Config[i].File] {
					all, t.missing = append(all, d), append(t.missing, d)
				}
			}
		}
		return all, nil
	}
	var err error
	t.root, err = convert(0, payload.Config[0].Parsed, nil, 0)
	return t, err
}

// lineOf returns the line of an argument, which may be below the first line of a long directive.
func (t *Tree) lineOf(d *directive, arg string) int {
	lines := t.texts[d.file]
	for n := d.line; n <= min(len(lines), d.line+200); n++ {
		if strings.Contains(lines[n-1], arg) {
			return n
		}
		if strings.HasSuffix(strings.TrimSpace(lines[n-1]), ";") {
			break
		}
	}
	return d.line
}
