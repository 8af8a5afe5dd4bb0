package migrate

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/i18n"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write the golden files")

// optionsOf returns the Options that the first line of a configuration describes.
func optionsOf(t testing.TB, text string) Options {
	t.Helper()
	head, _, _ := strings.Cut(text, "\n")
	words, ok := strings.CutPrefix(head, "# module: ")
	require.True(t, ok, "the first line describes mod_fastdfs.conf")
	var o Options
	o.Readable = func(path string) bool { return strings.HasPrefix(path, "/readable/") }
	o.Writable = func(path string) bool { return strings.HasPrefix(path, "/var/log/") }
	o.HasAccount = func(name string) bool { return name == "fdfs" }
	if words == "none" {
		return o
	}
	o.ModuleFile = "/etc/fdfs/mod_fastdfs.conf"
	for _, w := range strings.Fields(words) {
		switch key, value, _ := strings.Cut(w, "="); key {
		case "groups":
			o.Module.Groups = strings.Split(value, ",")
		case "url":
			o.Module.GroupInURL = value == "true"
		case "trackers":
			o.Module.HasTrackers = true
		}
	}
	return o
}

// TestGolden: the translations of the configurations in testdata are the recorded ones. After a
// change of the translation, go test -update records the new ones for a review.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.conf")
	require.NoError(t, err)
	require.Greater(t, len(files), 15)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		got := translated(t, file, optionsOf(t, string(text)))
		golden := strings.TrimSuffix(file, ".conf") + ".golden"
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), got, file)
	}
}

// translated returns the whole result as a text.
func translated(t *testing.T, file string, o Options) string {
	t.Helper()
	tree, err := Read(file)
	var mistakes MistakesError
	if errors.As(err, &mistakes) {
		return "mistakes\n" + mistakes.Error() + "\n"
	}
	require.NoError(t, err)
	r := Translate(tree, o)
	var b strings.Builder
	fmt.Fprintf(&b, "complete: %t\n", r.Complete())
	for _, f := range r.Findings {
		fmt.Fprintln(&b, f)
		for _, text := range []i18n.Text{f.Text, f.Advice} {
			require.True(t, text.IsZero() || text.In(i18n.Chinese) != text.String(), "%s has no translation", text)
		}
	}
	config, _, _ := strings.Cut(r.Config, "\n# Not translated:\n")
	return b.String() + "----\n" + config
}

// readText reads a configuration without includes.
func readText(t testing.TB, text string) *Tree {
	t.Helper()
	tree, err := tryText(t, text)
	require.NoError(t, err)
	return tree
}

func tryText(t testing.TB, text string) (*Tree, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nginx.conf")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return Read(path)
}

// TestNoRegularFile: a pipe, a device and a folder are errors at once, as the main file and as an
// include.
func TestNoRegularFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.conf")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	for _, name := range []string{pipe, "/dev/zero", dir} {
		_, err := Read(name)
		require.ErrorContains(t, err, "is no regular file", name)
		_, err = tryText(t, "http { include "+name+"; }")
		require.ErrorContains(t, err, "is no regular file", name)
	}
}

// TestLua: braces and quotes in comments and strings of Lua do not end its block, and the server
// behind it is read.
func TestLua(t *testing.T) {
	t.Parallel()
	tree := readText(t, "http { server { location /group1/ { access_by_lua_block {\n -- don't } { \"\n --[[ } ]]\n"+
		" local a = \"}\\\"}\" local b = '{' local c = [==[ ] } ]==]\n if a then return { 1 } end\n }\n"+
		" ngx_fastdfs_module; }\n location /group2/ { ngx_fastdfs_module; expires 1d; } } }")
	r := Translate(tree, Options{ModuleFile: "/m", Module: Module{GroupInURL: true, HasTrackers: true}})
	require.Contains(t, r.Config, "access_by_lua_block")
	require.Contains(t, r.Config, "deny = "+everybody)
	require.Contains(t, r.Config, " expires 1d")
}

// TestEachDirectiveOnce: each directive of a translated server, also one inside of a said location,
// is once in the output with -v: as a key or a finding with its line, or as one that needs nothing.
func TestEachDirectiveOnce(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.conf")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		tree, err := Read(file)
		if err != nil {
			continue
		}
		tr, r := translate(tree, optionsOf(t, string(text)))
		said, nothing := map[string]int{}, map[string]int{}
		for _, f := range r.Findings {
			said[fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Directive)]++
		}
		for _, f := range r.Nothing {
			nothing[fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Directive)]++
		}
		var check func(block []*directive)
		check = func(block []*directive) {
			for _, d := range block {
				places := said[d.place()] + nothing[d.place()]
				isKey := strings.Contains(r.Config, "# "+d.place()+"\n")
				require.True(t, places == 1 || isKey && said[d.place()] == 0, "%s is %d times in the output",
					d.place(), places)
				require.False(t, isKey && nothing[d.place()] > 0, "%s is a key and nothing", d.place())
				check(d.block)
			}
		}
		for _, s := range tr.kept {
			check([]*directive{s.d})
		}
	}
}

// TestOutcomes: ten configurations as they are published for FastDFS have the keys that clients
// notice, say the rest, and take less than a second.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file       string
		exit       int
		keys, said string // separated by |
	}{
		{"storage", 0, "listen|idle_timeout", "note"},
		{"edge", 3, "store_path_count = 0|disk_path|[headers", "files are purged by gateway purge"},
		{"groups", 3, "listen|deny|[access", "access_log off"},
		{"https", 3, "tls_listen|tls_cert|tls_redirect = true", "b.pem: this host has no such file"},
		{"referers", 3, "referers|referer_redirect", "a foreign referer is 403 here"},
		{"names", 3, "filename_parameters|cors_origin", "a field cannot hold a variable"},
		{"images", 3, "forms = infix", "image_filter"},
		{"limits", 3, "requests_per_second", "limit_rate $limit"},
		{"sites", 3, "listen", "shares a port"},
		{"broken", 1, "", "mistake"},
	} {
		text, err := os.ReadFile("testdata/" + c.file + ".conf")
		require.NoError(t, err)
		tree, err := Read("testdata/" + c.file + ".conf")
		if c.exit == 1 {
			require.ErrorContains(t, err, c.said)
			continue
		}
		require.NoError(t, err)
		r := Translate(tree, optionsOf(t, string(text)))
		assert.Equal(t, c.exit == 0, r.Complete(), c.file)
		for _, key := range strings.Split(c.keys, "|") {
			assert.Contains(t, r.Config, key, c.file)
		}
		for _, said := range strings.Split(c.said, "|") {
			assert.Contains(t, fmt.Sprint(r.Findings), said, c.file)
		}
	}
}

// TestForms: the forms of links are those of the usual spellings of patterns; a pattern that files
// without a size have, too, has none.
func TestForms(t *testing.T) {
	t.Parallel()
	for pattern, forms := range map[string]string{
		`(.+\.jpg)_(\d+)x(\d+)\.jpg$`: "suffix", `\.(?:jpg|png)_([\d]+)x([0-9]+)\.(jpg|png)$`: "suffix",
		`(.+\.jpe?g)_(?<w>\d{1,4})x(?P<h>[1-9]\d*)\.jpe?g`: "suffix", `(\.\w+)_(\d+)x(\d+)(\.\w+)$`: "suffix",
		`^(.*)(\.jpg|\.png)_(\d+)[xX](\d+)(\.jpg|\.png)`: "suffix", `(.+?).jpg_([0-9]+)x([0-9]+).jpg`: "suffix",
		`([\w-]+)_(\d+)x(\d+)\.(?:jpg)$`: "infix", `([^.]+)_(200|400)x(\d+)\.jpg$`: "infix",
		`(.+?)_(\d+)x(\d+)(\.jpg|\.png)$`: "infix suffix", `([^/]+)_\d+x\d+\.`: "infix suffix",
		`!(\d+)(x|X)(\d+)$`: "bang", `(?!a)(.+\.jpg)!200x200$`: "bang",
		`(_(\d+)x(\d+))?\.jpg$`: "", `(.+_\d+x\d+\.jpg|.+\.png)$`: "", `_\d+x\d+`: "", `(_\d+x\d+){0,1}\.jpg`: "",
		`^/group1/M00/.*\.jpg$`: "", `(?!200x200)`: "",
	} {
		assert.Equal(t, forms, strings.Join(formsOf(pattern), " "), pattern)
	}
}

// TestDocumentedDirectives: the tables of docs/migrate-from-nginx.md and of its Chinese page have
// all directives that become keys, and no directive that directives.txt does not have.
func TestDocumentedDirectives(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"docs/migrate-from-nginx.md", "docs/zh/migrate-from-nginx.md"} {
		text, err := os.ReadFile("../../../" + page)
		require.NoError(t, err)
		_, list, ok := strings.Cut(string(text), "directives.txt")
		require.True(t, ok, page)
		documented := map[string]bool{}
		for line := range strings.Lines(list) {
			cells := strings.Split(line, " | ")
			for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[0], -1) {
				documented[m[1]] = true
				assert.True(t, isKnown(m[1]) && rowOf(m[1]).kind != "", "%s: %s", page, m[1])
			}
		}
		for name, r := range table() {
			assert.True(t, r.kind != "key" || documented[name], "%s lacks %s", page, name)
		}
	}
}

// TestLargeFile: a file with many servers and locations takes no long time.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("http { server { listen 80;\n")
	for i := range 300 {
		fmt.Fprintf(&b, "location ~ ^/group[0-9]/M0[0-3]/(.*)_%d\\.(jpg|png|gif)$ { ngx_fastdfs_module; }\n", i)
	}
	b.WriteString("location ~ ^/group[0-9]/M0[0-3]/ { ngx_fastdfs_module; } } }")
	tree := readText(t, b.String())
	start := time.Now()
	Translate(tree, Options{ModuleFile: "/m", Module: Module{GroupInURL: true, HasTrackers: true}})
	require.Less(t, time.Since(start), 20*time.Second, "usually a tenth of a second")
}

// TestMistakes: all mistakes of a file are named.
func TestMistakes(t *testing.T) {
	t.Parallel()
	_, err := tryText(t, "http {\n server {\n location /group1 { ngx_fastdfs_modules; }\n listen 80；\n"+
		" add_header A \"b;\n } }")
	require.ErrorContains(t, err, "nginx.conf:3: mistake: ngx_fastdfs_modules")
	require.ErrorContains(t, err, "nginx.conf:4: mistake")
	require.ErrorContains(t, err, "nginx.conf:5: mistake: the quote that begins here has no end")
}

var ofOneLocation = regexp.MustCompile("^(internal|content|js_|perl)")

// TestGuards: files behind a check stay closed, in whatever form the check is written.
func TestGuards(t *testing.T) {
	t.Parallel()
	for n, check := range []string{
		"auth_basic x;", "auth_request /a;", "auth_jwt x;", "auth_ldap x;", "secure_link $arg_a;", "internal;",
		"access_by_lua_file a.lua;", "access_by_lua_block { a() }", "rewrite_by_lua_file a.lua;",
		"content_by_lua_file a.lua;",
		"js_content a;", "perl a;", "deny all;", "deny all; satisfy any;",
		"allow unix:; deny all;", "if ($arg_token = '') { return 403; }",
		"if ($remote_addr != 192.0.2.1) { return 404; }",
		"if ($cookie_a) { rewrite ^ /login last; }", "if ($http_authorization = '') { return 401; }",
		"ssl_verify_client on;", "include auth.conf;", "satisfy all; auth_basic x; allow all;",
	} {
		for i, form := range []string{
			"server { location /group1 { ngx_fastdfs_module; %s } }",
			"server { location / { ngx_fastdfs_module; } location ~ group1 { ngx_fastdfs_module; %s } }",
			"server { %s location /group1 { ngx_fastdfs_module; } }",
			"server { location /group1 { location ~ M00 { ngx_fastdfs_module; } %s } }",
		} {
			if i > 0 && i != 1+n%3 {
				continue // each check in two of the forms
			}
			outer, nested := strings.Contains(form, "server { %s"), strings.Contains(form, "~ M00")
			if (outer || nested) && ofOneLocation.MatchString(check) || nested && strings.HasPrefix(check, "ssl_v") {
				continue // the check is not allowed here, or does not apply to the inner location
			}
			text := fmt.Sprintf(form, check)
			tree, err := tryText(t, text)
			if err != nil {
				continue // nginx does not start with it either
			}
			r := Translate(tree, Options{Module: Module{Groups: []string{"group1"}, GroupInURL: true},
				ModuleFile: "/m"})
			require.False(t, r.Complete(), text)
			if r.Config != "" {
				require.Contains(t, r.Config, "deny = "+everybody, text)
			}
		}
	}
}
