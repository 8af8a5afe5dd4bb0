package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestForms: forms that operators know from nginx or write by habit.
func TestForms(t *testing.T) {
	c := clean(t, base+"[gateway]\nlisten = 8080, 127.0.0.1:8081\n[access M01/]\ndeny = ALL\n"+
		"[cache]\nttl = 1d\nstale_if_error = 2w1d12h\n")
	require.Equal(t, []string{":8080", "127.0.0.1:8081"}, c.Gateway.Listen)
	require.Len(t, c.AccessSections[0].Deny.Prefixes, 2)
	require.True(t, c.AccessSections[0].Deny.Unix)
	require.Equal(t, 24*time.Hour, c.Cache.TTL)
	require.Equal(t, (15*24+12)*time.Hour, c.Cache.StaleIfError)
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
