package translation

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"fastdfs-gateway/internal/i18n"

	"github.com/stretchr/testify/require"
)

// sentenceArguments are the functions with sentences as arguments, and the positions of these. A
// sentence is a constant, or internal/i18n makes it.
var sentenceArguments = map[string][]int{
	"i18n.Sprintf": {0}, "i18n.Errorf": {0}, "i18n.Plain": {0}, "errors.New": {0},
	// internal/config
	"errorf": {2, 3}, "warnf": {2, 3}, "keyError": {1, 2}, "keyWarning": {1, 2}, "invalid": {0, 1},
	"questionable": {0, 1}, "parsed": {1, 2}, "token": {2, 3}, "networksOr": {3}, "absentf": {2, 3},
	"stop":    {1},
	"fail":    {1},
	"Warning": {2},
	// internal/doctor, internal/admin/status, internal/app
	"addResult": {3, 4}, "list.addProblem": {1}, "Plural": {1, 2},
	"t.say": {1, 2}, "mistake": {1, 2}, // internal/tools/migrate
	"say":  {0},                   // of the demonstration
	"step": {0, 1}, "answer": {0}, // of explain
	// help of the command line
	"exit1": {0}, "exits": {0, 1}, "String": {2}, "StringP": {3}, "StringVar": {3}, "Bool": {2}, "BoolP": {3},
	"Int": {2}, "Int64": {2}, "Float64": {2}, "Func": {1}, "durationFlag": {3},
}

// scanned are the packages with sentences, from the root of the repository.
var scanned = []string{"cmd/gateway/command", "internal/admin", "internal/admin/status", "internal/app",
	"internal/config", "internal/tools/demo", "internal/tools/migrate", "internal/doctor",
	"internal/fleet", "internal/gateway", "internal/origin", "internal/httpserver/certificates",
	"internal/httpserver/fileselect",
	"internal/httpserver/logtemplate", "storage/client", "storage/local", "internal/process/listen",
	"internal/process/logfile", "internal/process/sandbox", "internal/tools/compare", "internal/fdfs",
	"antisteal", "tracker",
	"internal/variant", "internal/variant/picture", "tests/runcluster"}

// helpers are the functions of sentenceArguments without a package name, by the packages that call
// them. In other packages the names may be those of other functions.
var helpers = map[string][]string{
	"internal/config": {"errorf", "warnf", "keyError", "keyWarning", "invalid", "questionable",
		"parsed", "token",
		"networksOr", "absentf", "stop", "fail"},
	"tests/runcluster": {"say"}, "internal/doctor": {"addResult", "Warning", "Plural"}, "internal/app": {"Plural"},
	"cmd/gateway/command": {"Plural", "say", "exit1", "exits",
		"String", "StringP", "StringVar", "Bool", "BoolP", "Int", "Int64", "Float64", "Func", "durationFlag"},
	"internal/admin/status": {"list.addProblem", "Plural"},
	"internal/gateway":      {"step", "answer"}, "internal/origin": {"step", "errors.New"},
	"internal/admin": {"errors.New"}, "internal/fdfs": {"errors.New"}, "antisteal": {"errors.New"},
	"tracker": {"errors.New"}, "storage/local": {"errors.New"}, "internal/variant": {"errors.New"},
	"internal/variant/picture": {"errors.New"},
	"internal/tools/migrate":   {"t.say", "mistake"},
}

// sentenceFields are the fields whose constants are sentences.
var sentenceFields = map[string][]string{"cmd/gateway/command": {"Short", "Long"},
	"internal/gateway": {"reason"}, "internal/origin": {"why"}}

// scan finds sentences in the source.
type scan struct {
	found    map[string]string // sentence: its place in the source
	problems []string
}

// TestSentences: each sentence that the program prints for people has a Chinese translation with
// the same verbs, and each translation has its sentence.
func TestSentences(t *testing.T) {
	s := scan{found: map[string]string{}}
	for _, folder := range scanned {
		s.folder(t, folder)
	}
	s.pages(t)
	s.directives(t)
	require.Greater(t, len(s.found), 300, "the scan finds few sentences")
	for _, problem := range s.problems {
		t.Error(problem)
	}
	translations := i18n.Chinese.Catalog()
	for _, english := range slices.Sorted(maps.Keys(s.found)) {
		chinese, ok := translations[english]
		if !ok && !strings.ContainsFunc(verb.ReplaceAllString(english, ""), unicode.IsLetter) {
			continue // only marks around arguments
		}
		if !ok {
			t.Errorf("%s: no Chinese translation of %q", s.found[english], english)
			continue
		}
		if want, got := verbs(english), verbs(chinese); !maps.Equal(want, got) {
			t.Errorf("the translation of %q has other verbs: %v, not %v", english, got, want)
		}
	}
	for english := range translations {
		if _, ok := s.found[english]; !ok && !slices.Contains(system, english) {
			t.Errorf("the translation of %q is not used any more", english)
		}
	}
}

// system are the errors of the kernel and of Go's packages that have translations,
// with those of the parser of nginx's configurations.
var system = []string{"permission denied", "no such file or directory", "file does not exist", "is a directory",
	"not a directory", "i/o timeout", "connection refused", "context deadline exceeded", "too many open files",
	"no space left on device", "read-only file system", ": ", "address already in use",
	"cannot assign requested address", "operation not permitted", "no route to host", "network is unreachable",
	"no such host", "connection reset by peer", "broken pipe", "input/output error", "file exists",
	"file already exists", "too many levels of symbolic links", "file name too long", "cannot allocate memory",
	"no such device or address", "stale NFS file handle", "host is down", "invalid argument", "normal", "trunk",
	"slave", "appender", "open files", "memory", "unexpected EOF", "suspect", "dead", "unknown",
	"EOF", "premature end of file", "configs contain include cycle", "unknown directive %s", "unexpected %s",
	"%s directive is not allowed here", "directive %s's is not enclosed in parentheses",
	"directive %s has no opening %s", "directive %s is not terminated by %s",
	"invalid value %s in %s directive, it must be %s or %s", "invalid number of arguments in %s directive",
	"unexpected end of file, expecting %s"}

// noImports finds no imported package: the type checker only has to evaluate the constants of the
// package itself.
type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, fs.ErrNotExist }

func (s *scan) folder(t *testing.T, folder string) {
	fset := token.NewFileSet()
	names, err := filepath.Glob("../../" + folder + "/*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		files = append(files, file)
	}
	require.NotEmpty(t, files, folder)
	info := types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	checker := types.Config{Importer: noImports{}, Error: func(error) {}}
	_, _ = checker.Check(folder, fset, files, &info) // imports fail
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				s.call(fset, &info, folder, n)
			case *ast.KeyValueExpr:
				if name, ok := n.Key.(*ast.Ident); ok && slices.Contains(sentenceFields[folder], name.Name) &&
					info.Types[n.Value].Value != nil {
					s.sentence(fset, &info, n.Value)
				}
			case *ast.ValueSpec: // the kinds of findings
				if kind, ok := n.Type.(*ast.Ident); ok && kind.Name == "Kind" && folder == "internal/tools/migrate" {
					s.sentence(fset, &info, n.Values[0])
				}
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if field, ok := to.(*ast.SelectorExpr); ok && len(n.Rhs) == len(n.Lhs) &&
						slices.Contains(sentenceFields[folder], field.Sel.Name) && info.Types[n.Rhs[i]].Value != nil {
						s.sentence(fset, &info, n.Rhs[i])
					}
				}
			case *ast.CompositeLit:
				if name, ok := n.Type.(*ast.Ident); ok && folder == "internal/fdfs" && name.Name == "idError" {
					s.sentence(fset, &info, n.Elts[0])
				}
				if folder == "internal/config" && isSettings(n) {
					for _, row := range n.Elts {
						if row, ok := row.(*ast.CompositeLit); ok && len(row.Elts) == 4 {
							s.sentence(fset, &info, row.Elts[3])
						}
					}
				}
			}
			return true
		})
	}
}

// isSettings reports whether a literal is []setting{...}.
func isSettings(n *ast.CompositeLit) bool {
	array, ok := n.Type.(*ast.ArrayType)
	if !ok {
		return false
	}
	name, ok := array.Elt.(*ast.Ident)
	return ok && name.Name == "setting"
}

// call collects the sentences among the arguments of a call.
func (s *scan) call(fset *token.FileSet, info *types.Info, folder string, n *ast.CallExpr) {
	name := ""
	switch f := n.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
		if x, ok := f.X.(*ast.Ident); ok && sentenceArguments[x.Name+"."+f.Sel.Name] != nil {
			name = x.Name + "." + f.Sel.Name
		}
	}
	if !strings.HasPrefix(name, "i18n.") && !slices.Contains(helpers[folder], name) {
		return
	}
	for _, i := range sentenceArguments[name] {
		if i < len(n.Args) {
			s.sentence(fset, info, n.Args[i])
		}
	}
}

// exported are the constants of other packages that hold sentences.
var exported = map[string]string{"config.Masked": "(set, not shown)",
	"status.MemoryBudget": "Files of other hosts, memory", "status.DiskBudget": "Files of other hosts, disk"}

// sentence collects the sentence in one argument.
func (s *scan) sentence(fset *token.FileSet, info *types.Info, e ast.Expr) {
	at := fset.Position(e.Pos())
	place := fmt.Sprintf("%s:%d", strings.TrimPrefix(filepath.ToSlash(at.Filename), "../../"), at.Line)
	known := info.Types[e]
	text := ""
	switch e := e.(type) {
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			text = exported[x.Name+"."+e.Sel.Name]
		}
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.SelectorExpr); ok {
			if x, ok := f.X.(*ast.Ident); ok && (x.Name == "fmt" || x.Name == "strings") {
				s.problems = append(s.problems, place+": a sentence is made by "+x.Name+", not by i18n.Sprintf")
			}
		}
	case *ast.BinaryExpr:
		if known.Value == nil {
			s.problems = append(s.problems, place+": a sentence is put together by +, not by i18n.Sprintf")
		}
	}
	if known.Value != nil && known.Value.Kind() == constant.String {
		text = constant.StringVal(known.Value)
	}
	if hasWords(text) {
		s.found[text] = place
	}
}

var (
	verb     = regexp.MustCompile(`%([-+# 0]*)(\[(\d+)\])?([0-9.]*)([a-zA-Z%])`)
	inAction = regexp.MustCompile(`[({ ]t "((?:[^"\\]|\\.)*)"`)
)

// hasWords reports whether a format has more than verbs and blanks.
func hasWords(format string) bool {
	return strings.TrimSpace(verb.ReplaceAllString(format, "")) != ""
}

// pages collects the sentences of the pages.
func (s *scan) pages(t *testing.T) {
	for _, page := range []string{"internal/admin/status/page.html", "internal/tools/demo/index.html",
		"tests/runcluster/page.html"} {
		text, err := os.ReadFile("../../" + page)
		require.NoError(t, err)
		for n, line := range strings.Split(string(text), "\n") {
			for _, m := range inAction.FindAllStringSubmatch(line, -1) {
				s.found[m[1]] = fmt.Sprintf("%s:%d", page, n+1)
			}
		}
	}
}

// directives collects the sentences of the table of nginx's directives.
func (s *scan) directives(t *testing.T) {
	const table = "internal/tools/migrate/directives.txt"
	text, err := os.ReadFile("../../" + table)
	require.NoError(t, err)
	for n, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, sentence := range strings.Split(line, "|")[1:] {
			if sentence = strings.TrimSpace(sentence); sentence != "" {
				s.found[sentence] = fmt.Sprintf("%s:%d", table, n+1)
			}
		}
	}
}

// verbs returns the verb of each argument of a format, with its flags and width.
func verbs(format string) map[int]string {
	all, next := map[int]string{}, 1
	for _, m := range verb.FindAllStringSubmatch(format, -1) {
		if m[5] == "%" {
			continue
		}
		if m[3] != "" {
			next, _ = strconv.Atoi(m[3]) // digits
		}
		all[next] = m[1] + m[4] + m[5]
		next++
	}
	return all
}

// TestVerbs: a translation may have the arguments in another order, but must have each of them,
// with the same verb.
func TestVerbs(t *testing.T) {
	require.Equal(t, map[int]string{1: "s", 2: ".80q", 3: "d"}, verbs("%s: %.80q 100 %% %d"))
	require.Equal(t, verbs("%s of %d"), verbs("%[2]d 的 %[1]s"))
	require.NotEqual(t, verbs("%s"), verbs("%d"))
}
