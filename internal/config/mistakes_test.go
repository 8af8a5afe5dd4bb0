package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMistakes: lines that were typed by mistake, or copied from an old guide, have a problem with
// their line. The first line of base is line 1.
func TestMistakes(t *testing.T) {
	const ignored = "warning: a line without = is ignored; "
	const noInclude = "warning: this line includes no file and is ignored; did you mean #include http.conf?"
	const noKey = "warning: %s is no known key and is ignored; remove the line; tokens are checked with " +
		"http.anti_steal.check_token = true and http.anti_steal.secret_key"
	const noDirective = "warning: %s is not evaluated: it is a comment here, and all lines below it count; " +
		"write the lines that hold on this host, without directives"
	for _, c := range []struct{ line, want string }{
		{"include http.conf", noInclude},
		{"# include http.conf", noInclude},
		{"include=http.conf", noInclude},
		{"#include: http.conf", noInclude},
		{"# include the following", ""},
		{"#include", "warning: #include names no file and is ignored; " +
			"write `#include FILE`, or a blank behind the # if it is a comment"},
		{"http.anti_steal.check_token true", ignored + "did you mean http.anti_steal.check_token = true?"},
		{"http.anti_steal.secret_key: 1234", ignored + "did you mean http.anti_steal.secret_key = ...?"},
		{"group_name＝group1", ignored + "did you mean group_name = group1?"},
		{"something else", ignored + "write key = value, or # in front of a comment"},
		{"[group1", "warning: a line that begins with [ but does not end with ] opens no section and is ignored; " +
			"write the name in brackets and nothing behind it"},
		{"http.anti_steal_token = true", fmt.Sprintf(noKey, `"http.anti_steal_token"`)},
		{"http.secret_key = 1234", fmt.Sprintf(noKey, `"http.secret_key"`)},
		{"http.anti_steal.enable = 1", fmt.Sprintf(noKey, `"http.anti_steal.enable"`)},
		{"foo = bar", `warning: "foo" is no known key and is ignored; correct the name, or remove the line`},
		{"http.anti_steal.chek_token = true", `error: "http.anti_steal.chek_token" is no known key here, so no ` +
			"token is checked; did you mean http.anti_steal.check_token (serve only requests with a valid token)?"},
		{"http.anti_steal.chek_token = false", `warning: "http.anti_steal.chek_token" is no known key and is ` +
			"ignored; did you mean http.anti_steal.check_token (serve only requests with a valid token)?"},
		{"http.anti_steal.check_token = yes", "error: tokens are checked, but http.anti_steal.secret_key is empty: " +
			"anyone can make a token; set a long random secret, or secret_files in [antisteal]"},
		{"[gateway]\nlisten = 0", `error: listen = "0" holds 0, which is no port; ` +
			"write a port from 1 to 65535, or :0 for any free port, another one after each start"},
		{"#@if ON", fmt.Sprintf(noDirective, "#@if")},
		{"#@for i from 0 to 3", fmt.Sprintf(noDirective, "#@for")},
		{"[gateway]\nlisten = :88888",
			`error: listen = ":88888" holds ":88888", and 88888 is no port; write a port from 0 to 65535`},
		{"[gateway]\nidle_timeout = 900d", `error: idle_timeout = "900d" is not a duration in range; ` +
			"write a duration from 1ms to 1d, such as 500ms, 10s, 1h, 1d or plain seconds"},
		{"[gateway]\ncache_control = 30d",
			`warning: cache_control = "30d" holds "30d", which no cache knows; did you mean max-age=2592000?`},
		{"[gateway]\ncache_control = public, max-age", `warning: cache_control = "public, max-age" holds "max-age", ` +
			"which has no number of seconds; write max-age=SECONDS"},
		{"[headers]\nCache-Control = publik",
			`warning: Cache-Control = "publik" holds "publik", which no cache knows; did you mean public?`},
		{"[access]\nallow = 10.0.0.0/8\ndeny = all", "error: deny has all clients, and wins over allow: nobody is " +
			"served; remove the line: where allow is set, all others are denied already"},
		{"[gateway]\ncors = *", `error: [gateway] has no key "cors"; remove the line; ` +
			"the most similar keys are cors_origin, cors_expose, cors_headers"},
	} {
		_, problems := load(t, base+c.line+"\n")
		if c.want == "" {
			require.Empty(t, problems, c.line)
			continue
		}
		require.Len(t, problems, 1, c.line)
		text := problems[0].String()
		require.Equal(t, c.want, text[strings.Index(text, ": ")+2:], c.line)
		require.Equal(t, 3+strings.Count(c.line, "\n"), problems[0].Line, c.line)
		require.NotContains(t, text, "1234", "the value may be a secret")
	}
}

// TestForms: forms that operators know from nginx or write by habit.
func TestForms(t *testing.T) {
	c := clean(t, base+"[gateway]\nlisten = 8080, 127.0.0.1:8081\n[access group2/]\ndeny = ALL\n"+
		"[cache]\nttl = 1d\nstale_if_error = 2w1d12h\n")
	require.Equal(t, []string{":8080", "127.0.0.1:8081"}, c.Gateway.Listen)
	require.Len(t, c.AccessSections[0].Deny.Prefixes, 2)
	require.True(t, c.AccessSections[0].Deny.Unix)
	require.Equal(t, 24*time.Hour, c.Cache.TTL)
	require.Equal(t, (15*24+12)*time.Hour, c.Cache.StaleIfError)
}

// TestIncludeInAnyCase: the module compares the word without case.
func TestIncludeInAnyCase(t *testing.T) {
	for _, word := range []string{"#include", "#INCLUDE", "#Include"} {
		dir := put(t, map[string]string{"m.conf": base + word + " http.conf\n", "http.conf": "flv_extension = f4v\n"})
		c, problems := Load(filepath.Join(dir, "m.conf"))
		require.Empty(t, problems)
		require.Equal(t, "f4v", c.FLVExtension, word)
	}
}

// TestNestedInclude: an included file is looked for beside the file with the line, then beside the
// file of -c, where the module looks.
func TestNestedInclude(t *testing.T) {
	files := map[string]string{"m.conf": base + "#include sub/a.conf\n", "sub/a.conf": "#include b.conf\n",
		"b.conf": "flv_extension = top\n"}
	dir := put(t, files)
	c, problems := Load(filepath.Join(dir, "m.conf"))
	require.Empty(t, problems)
	require.Equal(t, "top", c.FLVExtension)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub/b.conf"), []byte("flv_extension = sub\n"), 0o600))
	c, problems = Load(filepath.Join(dir, "m.conf"))
	require.Equal(t, "sub", c.FLVExtension)
	require.Equal(t, 1, found(problems, Warning, 1, "sub/b.conf", "and the module reads", "keep one of the two files"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.conf"), []byte("flv_extension = sub\n"), 0o600))
	_, problems = Load(filepath.Join(dir, "m.conf"))
	require.Empty(t, problems, "they do not differ")
}

// TestOtherFormats: a file that is no configuration has one problem, which names its format.
func TestOtherFormats(t *testing.T) {
	for text, want := range map[string]string{
		`{"listen": ":8888"}`: "is JSON; write lines key = value",
		"http {\n  server {\n    listen 80;\n  }\n}\n": "is a configuration of nginx; gateway migrate -nginx FILE " +
			"translates it",
		"a = 1\rb = 2\r":  "has lines that end with CR alone, so it is one line; save it with lines that end with LF",
		"a\x00=\x001\x00": "holds NUL bytes, it is no text (or UTF-16); save it as UTF-8",
	} {
		c, problems := CheckFile(filepath.Join(put(t, map[string]string{"m.conf": text}), "m.conf"), time.Now())
		require.Nil(t, c)
		require.Len(t, problems, 1)
		require.Equal(t, 1, found(problems, Error, 0, want))
	}
}

// TestAllProblems: a problem of the text hides none of the host, and a key that may be in a file
// that was not read is not called missing.
func TestAllProblems(t *testing.T) {
	dir := put(t, map[string]string{"m.conf": "group_name = group1\nstore_path_count = 2\nstore_path0 = /none\n" +
		"tracker_server = a:b:c:d\n#include no.conf\n"})
	c, problems := CheckFile(filepath.Join(dir, "m.conf"), time.Now())
	require.Nil(t, c)
	require.Equal(t, 1, found(problems, Error, 3, `store path "/none" is not there`))
	require.Equal(t, 1, found(problems, Error, 4, "is no address of a tracker"))
	require.Equal(t, 1, found(problems, Error, 5, "no such file"))
	require.Len(t, problems, 3)
}

// TestMisspelledCheckToken: a line that was meant to switch tokens on is no error where another one
// does that.
func TestMisspelledCheckToken(t *testing.T) {
	_, problems := load(t, base+"http.anti_steal.chek_token = true\nhttp.anti_steal.check_token = false\n")
	require.Equal(t, 1, found(problems, Warning, 3, "did you mean http.anti_steal.check_token"))
}

// TestEndlessFiles: files of an operator that are pipes or devices are an error at once.
func TestEndlessFiles(t *testing.T) {
	t.Parallel()
	const secrets = "http.anti_steal.check_token = true\n[antisteal]\nsecret_files = "
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	for _, file := range []string{pipe, "/dev/zero"} {
		const why = "it is a pipe, a socket or a device"
		require.Equal(t, 1, found(second(CheckFile(file, time.Now())), Error, 0, why, "write its content into a file"))
		for text, want := range map[string]string{
			"#include " + file:                                      why,
			"http.mime_types_filename = " + file:                    why,
			"use_storage_id = true\nstorage_ids_filename = " + file: why,
			secrets + file:                                          why,
			"[gateway]\nadmin_token_file = " + file:                 why,
			"[gateway]\ntls_key = " + file + "\ntls_cert = " + file: "is no regular file",
		} {
			conf := filepath.Join(put(t, map[string]string{"m.conf": base + text + "\n"}), "m.conf")
			problems := second(CheckFile(conf, time.Now()))
			require.Equal(t, 1, found(problems, Error, 3+strings.Count(text, "\n"), want), "%s: %v", text, problems)
		}
	}
}

func second(_ *Config, problems []Problem) []Problem { return problems }
