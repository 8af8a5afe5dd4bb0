package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"fastdfs-gateway/internal/i18n"

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
	file     string // as findings show it
	line     int
	name     string
	args     []string
	block    []*directive
	isBlock  bool
	location *directive // the location around the directive; nil = none
}

// String returns the directive on one line, without its block.
func (d *directive) String() string {
	return oneLine(strings.Join(append([]string{d.name}, d.args...), " "), 120)
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

// option returns the value of a parameter name=value.
func (d *directive) option(name string) string {
	for _, a := range d.args {
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			return v
		}
	}
	return ""
}

// oneLine makes a text printable on one line of bounded length.
func oneLine(text string, limit int) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
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
	missing  []*directive // include directives of missing files
	findings []Finding    // typographic quotes, which nginx accepts as letters
}

// reader reads one configuration.
type reader struct {
	path, dir     string
	before, after string            // text around a bare file that opens and closes the blocks around it
	texts         map[string]string // by path
	missing       map[string]bool
}

// Read parses a configuration with its includes. The file is a whole nginx.conf, or a bare one: a
// file of conf.d, which has no http block, or a list of locations. Names of includes are relative
// to the folder of the main file; for a bare file also to the folder above. The error is a
// MistakesError if the text is wrong.
func Read(path string) (*Tree, error) {
	r := &reader{path: path, dir: filepath.Dir(path), texts: map[string]string{}, missing: map[string]bool{}}
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	r.texts[path] = text
	r.before, r.after = blocksAround(text)
	payload, err := crossplane.Parse(path, &crossplane.ParseOptions{
		Open: r.openFile, Glob: r.glob, DirectiveSources: catalogs})
	if err != nil {
		return nil, i18n.Errorf("cannot read %s: %w", path, err)
	}
	found := r.mistakes(payload)
	if slices.ContainsFunc(found, func(f Finding) bool { return f.Kind == Mistake }) {
		return nil, MistakesError(found)
	}
	t := &Tree{main: r.shown(r.path), dir: r.dir, findings: found}
	left := maxDirectives
	if t.root, err = r.convert(t, payload, payload.Config[0], nil, &left, 0); err != nil {
		return nil, i18n.Errorf("cannot read %s: %w", path, err)
	}
	return t, nil
}

// readFile returns the text of a regular file. The open of a pipe does not wait for a writer.
func readFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read from: nothing is lost
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(i18n.Errorf("%s is no regular file", path), err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	switch {
	case err != nil:
		return "", err
	case len(data) > maxFileBytes:
		return "", i18n.Errorf("%s has more than %d bytes", path, maxFileBytes)
	case bytes.IndexByte(data, 0) >= 0:
		return "", i18n.Errorf("%s holds NUL bytes: save it as UTF-8 or plain ASCII text", path)
	}
	return withoutLua(strings.TrimPrefix(string(data), "\ufeff")), nil
}

// openFile opens a file for crossplane. An include that is missing is an empty file here, and
// becomes a finding later.
func (r *reader) openFile(path string) (io.ReadCloser, error) {
	if _, known := r.texts[path]; !known {
		if len(r.texts) > maxFiles {
			return nil, i18n.Errorf("more than %d files", maxFiles)
		}
		text, err := readFile(path)
		if errors.Is(err, os.ErrNotExist) && r.before != "" {
			text, err = readFile(r.above(path))
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
	if len(found) == 0 && r.before != "" {
		return filepath.Glob(r.above(pattern))
	}
	return found, err
}

// above returns the path of an include of a bare file relative to the folder above: nginx.conf,
// which includes the files of conf.d, is there.
func (r *reader) above(path string) string {
	return filepath.Join(filepath.Dir(r.dir), strings.TrimPrefix(path, r.dir))
}

var (
	comment     = lazy(`(?m)(^|[\s;{}])#.*$`)
	mainBlock   = lazy(`(?m)(^|[;{}\s])(http|events|stream)\s*\{`)
	serverBlock = lazy(
		`(?m)(^|[;}\s])(server\s*\{|upstream\s+\S+\s*\{|(log_format|limit_req_zone|map|geo)\s)`)
	locBlock = lazy(`(?m)(^|[;}\s])location[\s~=^]+[^;]*\{`)
)

// blocksAround returns the text that opens and closes the blocks around a bare file, as nginx.conf
// does. before has no line break, so line numbers stay.
func blocksAround(text string) (before, after string) {
	text = comment().ReplaceAllString(text, "$1")
	switch {
	case mainBlock().MatchString(text):
		return "", ""
	case serverBlock().MatchString(text):
		return "http { ", "\n}"
	case locBlock().MatchString(text):
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

// unescape replaces the characters that nginx reads behind a backslash.
var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\'`, `'`)

// convert joins the files into one tree of directives. left bounds their number.
func (r *reader) convert(t *Tree, payload *crossplane.Payload, file crossplane.Config, in *directive, left *int,
	depth int) (all []*directive, err error) {
	if depth > maxDepth {
		return nil, i18n.Errorf("blocks and includes are nested more than %d times", maxDepth)
	}
	for _, c := range file.Parsed {
		if *left--; *left < 0 {
			return nil, i18n.Errorf("more than %d directives", maxDirectives)
		}
		d := &directive{file: r.shown(file.File), line: c.Line, name: c.Directive, isBlock: c.Block != nil,
			location: in}
		for _, arg := range c.Args {
			d.args = append(d.args, unescape.Replace(arg))
		}
		around := in
		if d.name == "location" {
			around = d
		}
		block := crossplane.Config{File: file.File, Parsed: c.Block}
		if d.block, err = r.convert(t, payload, block, around, left, depth+1); err != nil {
			return nil, err
		}
		if c.Directive != "include" || c.IsMapBlockParameter {
			all = append(all, d)
			continue
		}
		for _, i := range c.Includes {
			inner, err := r.convert(t, payload, payload.Config[i], in, left, depth+1)
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

// lazy returns a regular expression that is compiled at its first use: at each start of the gateway
// those of this package would take more memory than all other packages together.
func lazy(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
