package config

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// base is the smallest valid configuration.
const base = "group_name = group1\nbase_path = /srv/fdfs\n"

// put writes files into a new folder and returns its path.
func put(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(text), 0o600))
	}
	return dir
}

// load loads one file with the given text.
func load(t testing.TB, text string) (*Config, []Problem) {
	t.Helper()
	return Load(filepath.Join(put(t, map[string]string{"m.conf": text}), "m.conf"))
}

// clean loads a text that has no problems.
func clean(t *testing.T, text string) *Config {
	t.Helper()
	c, problems := load(t, text)
	require.Empty(t, problems)
	require.NotNil(t, c)
	return c
}

// found returns the number of problems that have this severity and line, and contain all the parts.
func found(problems []Problem, severity Severity, line int, parts ...string) int {
	n := 0
	for _, p := range problems {
		ok := p.Severity == severity && p.Line == line
		for _, part := range parts {
			ok = ok && strings.Contains(p.String(), part)
		}
		if ok {
			n++
		}
	}
	return n
}

func TestRepeatedScalarLastCounts(t *testing.T) {
	c, problems := load(t, base+"connect_timeout = bad\nconnect_timeout = 7\nstore_path0 = /a\nstore_path0 = /b\n"+
		"[gateway]\nx_cache=true\n[gateway]\nx_cache=false\n[image]\npreset.a = w=1\npreset.a = w=2\n")
	require.NotNil(t, c)
	require.Equal(t, 7*time.Second, c.ConnectTimeout)
	require.Equal(t, []string{"/b"}, c.Groups[0].StorePaths)
	require.False(t, c.Gateway.XCache)
	require.Equal(t, 2, c.Image.Presets["a"].Width)
	require.Len(t, problems, 4)
	require.Equal(t, 1, found(problems, Warning, 13, "preset.a"))
	require.Equal(t, 1, found(problems, Warning, 4, "connect_timeout is written already in", "line 3"))
	require.Equal(t, 1, found(problems, Warning, 6, "store_path0"))
	require.Equal(t, 1, found(problems, Warning, 10, "x_cache"))
}

// TestOverrideOfIncluded: a file that includes the one of FastDFS and then overrides a key has no
// problem. An included file that repeats an earlier key of the including one has one.
func TestOverrideOfIncluded(t *testing.T) {
	dir := put(t, map[string]string{"module.conf": base + "connect_timeout = 7\nlog_level = warn\n",
		"m.conf":     "#include module.conf\nlog_level = debug\n",
		"twice.conf": "log_level = debug\n#include module.conf\n"})
	c, problems := Load(filepath.Join(dir, "m.conf"))
	require.Empty(t, problems)
	require.Equal(t, slog.LevelDebug, c.LogLevel)
	c, problems = Load(filepath.Join(dir, "twice.conf"))
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].String(),
		"log_level is written already in "+filepath.Join(dir, "twice.conf")+" line 1")
	require.Equal(t, slog.LevelWarn, c.LogLevel)
}

// TestIncludedTwice: if a file is included several times, one warning names both places, whatever
// the number of its keys. The last include counts.
func TestIncludedTwice(t *testing.T) {
	dir := put(t, map[string]string{"http.conf": "http.default_content_type = a/b\nhttp.anti_steal.token_ttl = 7\n",
		"m.conf": base + "#include http.conf\n#include ./http.conf\n#include http.conf\n"})
	_, problems := Load(filepath.Join(dir, "m.conf"))
	require.Len(t, problems, 1)
	require.Equal(t, 1, found(problems, Warning, 4, "http.conf", "is included already in", "m.conf line 3"))
}

// TestMisspelledMultiRange: the misspelled key of the stock files of FastDFS 5.11 to 6.15 works.
func TestMisspelledMultiRange(t *testing.T) {
	require.False(t, clean(t, base+"http.multi_range.enabed = false\n").MultiRange)
	require.True(t, clean(t, base+"http.multi_range.enabed = true\n").MultiRange)
}

func TestUnknownKeysAndSections(t *testing.T) {
	c, problems := load(t, base+"conect_timeout = 1\nhttp.disabled = false\nlisten = :80\n[gateway]\nlistn = :80\n"+
		"Max_Ranges=3\nttl = 1s\nnonsense = 1\n[gatway]\nx = 1\n[other]\n[group1]\nstore_paht0=/x\n")
	require.Nil(t, c)
	require.Equal(t, 1, found(problems, Warning, 3, "conect_timeout", "did you mean connect_timeout ("))
	require.Equal(t, 1, found(problems, Warning, 4, "http.disabled", "is no known key and is ignored"))
	require.Equal(t, 1, found(problems, Warning, 5, "listen belongs in [gateway]"))
	require.Equal(t, 1, found(problems, Error, 7, "did you mean listen ("))
	require.Equal(t, 1, found(problems, Error, 8, "did you mean max_ranges ("))
	require.Equal(t, 1, found(problems, Error, 9, "ttl belongs in [cache]"))
	require.Equal(t, 1, found(problems, Error, 10, "correct the name, or remove the line"))
	require.Equal(t, 1, found(problems, Error, 11, "did you mean [gateway]?"))
	require.Equal(t, 1, found(problems, Warning, 13, "no known section"))
	require.Equal(t, 1, found(problems, Warning, 14, "group_count is 0"))
	require.Len(t, problems, 10)

	_, problems = load(t, base+"[gateway]\nbase_path = /x\nstore_path0 = /y\n")
	require.Equal(t, 1, found(problems, Error, 4, "belongs in the global section"))
	require.Equal(t, 1, found(problems, Error, 5, "belongs in the global section"))
}

// TestProblemsAreBounded: the number of problems of a file is limited.
func TestProblemsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("[gateway]\n")
	for i := range 10 * maxProblems {
		fmt.Fprintf(&b, "nonsense%d = 1\n", i)
	}
	c, problems := load(t, b.String())
	require.Nil(t, c)
	require.Len(t, problems, maxProblems+1)
}

// TestSecretsAreNotShown: no problem shows a secret, whatever its mistake is.
func TestSecretsAreNotShown(t *testing.T) {
	const secret = "hush"
	_, problems := load(t, base+"http.anti_steal.check_token=true\n"+
		"http.anti_steal.secret_key = "+secret+"\nhttp.anti_steal.secret_key = "+secret+
		"\nhttp.anti_steal.secret_kay = "+secret+"\nanti_steal_bypass_header_value = "+secret+
		"\n[redis]\npassword = "+secret+"\naddresses = redis://u:"+secret+
		"@h:1\npasword = "+secret+"\n[peer]\nsecret = "+secret+"\nadvertise = http://u:"+secret+
		"@h\n[antisteal]\nextra_secrets = "+secret+",,"+secret+"\n")
	require.NotEmpty(t, problems)
	for _, p := range problems {
		require.NotContains(t, p.String(), secret)
	}
	require.Equal(t, 1, found(problems, Error, 16, "extra_secrets = (not shown) has an empty member"))
}

// sampleSettings returns the settings of the sample, and those behind a #.
func sampleSettings(t *testing.T, text string) (set, shown map[string]string) {
	t.Helper()
	setting := regexp.MustCompile(`^(#?)(\[\w+\]|([\w.]+) = (.*))$`)
	set, shown = map[string]string{}, map[string]string{}
	section := ""
	for _, line := range strings.Split(text, "\n") {
		m := setting.FindStringSubmatch(line)
		switch {
		case m == nil:
		case m[2][0] == '[':
			section = strings.Trim(m[2], "[]")
		case m[1] == "":
			set[full(section, m[3])] = m[4]
		default:
			shown[full(section, m[3])] = m[4]
		}
	}
	return set, shown
}

// TestSampleHoldsEveryKey: the sample contains every key once, set to its default, or behind a # if
// the default is empty.
func TestSampleHoldsEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../mod_fastdfs.conf")
	require.NoError(t, err)
	set, shown := sampleSettings(t, string(text))
	// The values that a store needs, and the form of URLs that clients expect.
	differs := map[string]string{"group_name": "group1", "base_path": "/opt/fastdfs", "url_have_group_name": "true"}
	keys := newTables(&Config{})
	keys["group1"] = groupKeys(new(string), new(int), new(int))
	total := 0
	for section, settings := range keys {
		for _, s := range settings {
			total++
			name := full(section, s.key)
			require.NotEmpty(t, s.doc, name)
			want, own := differs[name]
			switch {
			case own:
				require.Equal(t, want, set[name], name)
			case s.def == "" || section == "group1" || section == imageSection: // its presence has an effect
				require.NotEmpty(t, shown[name], name)
				require.NotContains(t, set, name)
			default:
				require.Equal(t, s.def, set[name], name)
			}
		}
	}
	// store_path0, group1.store_path0, one address in address_map, one extension in types, two
	// pages, a preset
	const others = 7
	require.Equal(t, total+others, len(set)+len(shown), "the sample holds keys that do not exist, or twice")
	for _, name := range []string{"store_path0", "group1.store_path0", "address_map.10.0.0.1", "types.log",
		"error_pages.404", "error_pages.5xx", "image.preset.thumb"} {
		require.Contains(t, shown, name)
	}
}

func TestSampleLoads(t *testing.T) {
	c, problems := Load("../../mod_fastdfs.conf")
	require.Empty(t, problems)
	require.Equal(t, []string{"/group1/M00/HH/LL/NAME"}, c.URLForms())
	for _, p := range c.Check(time.Now()) {
		require.Regexp(t, "store path|tracker_server", p.Text.String(), "what every operator has to set: %v", p)
	}

	// The sample has no errors without the # in front of its settings either.
	text, err := os.ReadFile("../../mod_fastdfs.conf")
	require.NoError(t, err)
	all := regexp.MustCompile(`(?m)^#([\w.]+ = |\[)`).ReplaceAllString(string(text), "$1")
	all = strings.Replace(all, "\nreferer_redirect = ", "\n#", 1) // the sample has referer_file in its place
	all = strings.Replace(all, "group_count = 0", "group_count = 1", 1)
	c, problems = load(t, all)
	for _, p := range problems {
		require.Equal(t, Warning, p.Severity, p)
	}
	require.NotNil(t, c)
}
