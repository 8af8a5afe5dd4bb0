package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// read returns the entries and problems of one text.
func read(t testing.TB, text string) ([]entry, []Problem) {
	t.Helper()
	r := &report{}
	doc := readDocument(filepath.Join(put(t, map[string]string{"m.conf": text}), "m.conf"), r)
	return doc.entries, r.problems
}

func values(entries []entry) [][3]string {
	var out [][3]string
	for _, e := range entries {
		out = append(out, [3]string{e.section, e.key, e.value})
	}
	return out
}

// hostile are values that common INI parsers interpret.
var hostile = []string{
	`a%(b)s;#"x\`, `a\`, `\`, "`", "`a`", "`a", `"""`, `"""a"""`, `"""a`, `"a"`, `'a'`, `"`, `[a]`, `[`, `]`, `a]`, `=`,
	`==a`, `a=b`, `a:b`, `:a`, `:`,
	`;a`, `#a`, `a ; b`, `a # b`, `a;b#c`, `%(a)s`, `%(k)s`, `${k}`, `$k`, `-`, `|`, `1:|`, `0:x|`, "a\tb",
	"\u00a0a\u00a0", "\u0085", "é", "\xff\xfe", "a\rb", `\n`, `\x41`, `a\;b`,
	`<<EOF`, `true`, strings.Repeat("x", 200_000), strings.Repeat(`"`, 5000), "  inner  blanks  here", "",
}

func TestDialectLines(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       [][3]string
	}{
		{"empty", "", nil},
		{"comments", "# a = 1\n  #b=2\n\t# include x\n#included = 3\n#", nil},
		{"semicolon is no comment", ";a = 1", [][3]string{{"", ";a", "1"}}},
		{"bracket without end", "[a = 1", [][3]string{{"", "[a", "1"}}},
		{"crlf", "a = 1\r\n[s]\r\nb = 2\r\n", [][3]string{{"", "a", "1"}, {"s", "b", "2"}}},
		{"byte order mark", "\xef\xbb\xbfa=1\nb=2", [][3]string{{"", "a", "1"}, {"", "b", "2"}}},
		{"byte order mark, section", "\xef\xbb\xbf[s]\nb=2", [][3]string{{"s", "b", "2"}}},
		{"leading blanks", "   a = 1\n\tb = 2\n  [s]\n c=3",
			[][3]string{{"", "a", "1"}, {"", "b", "2"}, {"s", "c", "3"}}},
		{"merged sections, repeated keys in order", "[s]\nt=1\n[u]\nt=2\n[s]\nt=3\nt=1\n",
			[][3]string{{"s", "t", "1"}, {"u", "t", "2"}, {"s", "t", "3"}, {"s", "t", "1"}}},
		{"global again", "[s]\na=1\n[]\nb=2\n[  ]\nc=3", [][3]string{{"s", "a", "1"}, {"", "b", "2"}, {"", "c", "3"}}},
		{"case", "a=1\nA=2\n[S]\na=3\n[s]\na=4",
			[][3]string{{"", "a", "1"}, {"", "A", "2"}, {"S", "a", "3"}, {"s", "a", "4"}}},
		{"continuation", "a = 1\\\nb = 2\n  c = 3", [][3]string{{"", "a", `1\`}, {"", "b", "2"}, {"", "c", "3"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			entries, problems := read(t, c.text)
			require.Empty(t, problems)
			require.Equal(t, c.want, values(entries))
		})
	}
	entries, problems := read(t, "[s] # ours\na=1\n")
	require.Equal(t, [][3]string{{"", "a", "1"}}, values(entries))
	require.Equal(t, 1, found(problems, Warning, 1, "opens no section"))
}

// TestIncludes: inside and after an include the current section is the global one.
func TestIncludes(t *testing.T) {
	dir := put(t, map[string]string{
		"m.conf":     "# c\r\na=1\n\n  #include\tsub/i.conf  \nb=2\n[s]\n#include sub/j.conf\n[u]\nc=3",
		"sub/i.conf": "x=1\n[s]\n#include j.conf\ny=2",
		"sub/j.conf": "\nz=1",
	})
	m, i, j := filepath.Join(dir, "m.conf"), filepath.Join(dir, "sub/i.conf"), filepath.Join(dir, "sub/j.conf")
	r := &report{}
	doc := readDocument(m, r)
	require.Equal(t, []entry{
		{"", "a", "1", position{m, 2}},
		{"", "x", "1", position{i, 1}},
		{"", "z", "1", position{j, 2}},
		{"", "y", "2", position{i, 4}},
		{"", "b", "2", position{m, 5}},
		{"", "z", "1", position{j, 2}},
		{"u", "c", "3", position{m, 9}},
	}, doc.entries)
	require.Equal(t, []string{m, i, j, j}, doc.files)
	require.Equal(t, map[string]position{"s": {i, 2}, "u": {m, 8}}, doc.sections)
	require.Len(t, r.problems, 1)
	require.Equal(t, 1, found(r.problems, Warning, 7, "m.conf", "is included already in", "i.conf line 3"))
}

func TestIncludeRejected(t *testing.T) {
	deep := map[string]string{}
	for i := range 12 {
		deep[fmt.Sprintf("d%d.conf", i)] = fmt.Sprintf("#include d%d.conf\n", i+1)
	}
	var sections strings.Builder
	for i := range maxSections + 5 {
		fmt.Fprintf(&sections, "[s%d]\na = 1\n", i)
	}
	many := map[string]string{}
	for i := range 100 {
		name := fmt.Sprintf("e%d.conf", i)
		many[name] = "a=1\n"
		many["m.conf"] += "#include " + name + "\n"
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		start string
		want  string
	}{
		{"missing", map[string]string{"m.conf": "#include no.conf\n"}, "m.conf", "no such file"},
		{"quoted", map[string]string{"m.conf": "#include \"m.conf\"\n"}, "m.conf", "without quotes"},
		{"folder", map[string]string{"m.conf": "#include d\n", "d/x": ""}, "m.conf", "is a directory"},
		{"itself", map[string]string{"m.conf": "#include ./m.conf\n"}, "m.conf", "in a circle"},
		{"circle of two",
			map[string]string{"m.conf": "#include d/n.conf\n", "d/n.conf": "#include ../m.conf\n"},
			"m.conf", "in a circle"},
		{"too deep", deep, "d0.conf", "more than 8 files deep"},
		{"too many", many, "m.conf", "more than 64 files"},
		{"too large", map[string]string{"m.conf": "#include b.conf\n#include b.conf\n",
			"b.conf": strings.Repeat("#"+strings.Repeat("x", 1023)+"\n", 600)}, "m.conf", "too large"},
		{"nul", map[string]string{"m.conf": "a\x00=1\n"}, "m.conf", "NUL"},
		{"utf-16", map[string]string{"m.conf": "\xff\xfea\x00=\x001\x00"}, "m.conf", "UTF-16"},
		{"too many settings", map[string]string{"m.conf": strings.Repeat("a=1\n", maxEntries+5)},
			"m.conf", "more than 10000 settings"},
		{"too many sections", map[string]string{"m.conf": sections.String()}, "m.conf", "more than 2000 sections"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &report{}
			_ = readDocument(filepath.Join(put(t, c.files), c.start), r)
			require.Len(t, r.problems, 1)
			require.Equal(t, Error, r.problems[0].Severity)
			require.Contains(t, r.problems[0].String(), c.want)
			require.NotEmpty(t, r.problems[0].Fix.String())
		})
	}
}

// TestIncludeCircleByLink: a circle of includes is found through a symbolic link too.
func TestIncludeCircleByLink(t *testing.T) {
	dir := put(t, map[string]string{"m.conf": "#include l.conf\n"})
	require.NoError(t, os.Symlink("m.conf", filepath.Join(dir, "l.conf")))
	c, problems := Load(filepath.Join(dir, "m.conf"))
	require.Nil(t, c)
	require.Equal(t, 1, found(problems, Error, 1, "l.conf", "in a circle"))
}

func TestMainFileMissing(t *testing.T) {
	c, problems := Load(filepath.Join(t.TempDir(), "no.conf"))
	require.Nil(t, c)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].String(), "no.conf: error: cannot read ")
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(base))
	f.Add([]byte("\xef\xbb\xbf[gateway]\r\nlisten = :80\n#include m.conf\n[]\n=\n[x\n"))
	f.Add([]byte("group_count=2\n[group1]\nstore_path_count=3\nstore_path9=/\n[groupN]\n"))
	for _, v := range hostile {
		f.Add([]byte("http.anti_steal.secret_key = " + v + "\n" + v))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		name := filepath.Join(dir, "m.conf")
		require.NoError(t, os.WriteFile(name, data, 0o644))
		c, problems := Load(name)
		failed := false
		for _, p := range problems {
			failed = failed || p.Severity == Error
			require.NotEmpty(t, p.Text.String())
			require.NotEmpty(t, p.File)
		}
		require.Equal(t, failed, c == nil)
	})
}

func TestExpandValue(t *testing.T) {
	env := map[string]string{"IP": "10.0.0.1", "_a1": "low", "EMPTY": "", "DOLLAR": "a${IP}$", "LINES": "a\nb",
		"LONG": strings.Repeat("x", 60_000)}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	for value, want := range map[string]string{
		"plain":              "plain",
		"https://${IP}:8887": "https://10.0.0.1:8887", "${IP}${_a1}": "10.0.0.1low", "<${EMPTY}>": "<>",
		"a$$b": "a$b", "$${IP}": "${IP}", "$$$${IP}": "$${IP}", "$IP": "$IP", "5$": "5$",
		"$": "$", "${DOLLAR}": "a${IP}$",
	} {
		got, err := expandValue(value, lookup)
		require.NoError(t, err, value)
		require.Equal(t, want, got, value)
	}
	for _, value := range []string{"${", "${}", "${IP", "${1A}", "${A-B}", "${A B}", "${UNSET}", "${ip}",
		"${LINES}", "${LONG}${LONG}"} {
		_, err := expandValue(value, lookup)
		require.Error(t, err, value)
	}
}

// TestEnvironment: variables are expanded in the gateway's own sections only, and no message shows
// a secret of a variable.
func TestEnvironment(t *testing.T) {
	t.Setenv("GW_IP", "10.0.0.7")
	t.Setenv("GW_SECRET", "hush-0123456789abcdef")
	c, problems := load(t, base+"log_filename = /tmp/${GW_IP}\n[gateway]\nurl_prefix = /${GW_IP}\n"+
		"access_log_format = ${status}$$\n[peer]\nadvertise = https://${GW_IP}:1\nsecret = ${GW_SECRET}$$\n"+
		"[redis]\naddresses = ${GW_IP}:2\n[address_map]\n10.0.0.1 = ${GW_IP}\n[headers]\nX-Host = ${GW_IP}\n")
	require.NotNil(t, c, problems)
	require.Equal(t, "/tmp/${GW_IP}", c.LogFile, "a key of the module")
	require.Equal(t, "/10.0.0.7", c.Gateway.URLPrefix)
	require.Equal(t, "${status}$$", c.Gateway.AccessLogFormat, "variables of the log")
	require.Equal(t, "https://10.0.0.7:1", c.Peer.Advertise)
	require.Equal(t, "hush-0123456789abcdef$", c.Peer.Secret)
	require.Equal(t, "10.0.0.7", c.AddressMap["10.0.0.1"])
	require.Equal(t, []HeaderField{{"X-Host", "10.0.0.7"}}, c.Headers[0].Fields)
	for _, e := range c.Effective() {
		require.NotContains(t, e.Value, "hush")
	}

	c, problems = load(t, base+"[peer]\nsecret = ${GW_SECRET_UNSET}\n[antisteal]\nextra_secrets = ${GW_SECRET},,x\n")
	require.Nil(t, c)
	require.Equal(t, 1, found(problems, Error, 4, "the environment has no variable GW_SECRET_UNSET", "$$"))
	require.Equal(t, 1, found(problems, Error, 6, "extra_secrets = (not shown)"))
	for _, p := range problems {
		require.NotContains(t, p.String(), "hush")
	}
}
