package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"

	"github.com/stretchr/testify/require"
)

// moduleFile writes the mod_fastdfs.conf that the first line of a configuration describes, and
// returns its path.
func moduleFile(t *testing.T, head string) string {
	t.Helper()
	words := strings.Fields(head)
	if slices.Contains(words, "none") {
		return ""
	}
	dir := t.TempDir()
	text := "base_path = " + dir + "\ntracker_server = 192.0.2.1:22122\n"
	text += fmt.Sprintf("url_have_group_name = %t\n", !slices.Contains(words, "url=false"))
	var sections string
	for _, w := range words {
		groups, ok := strings.CutPrefix(w, "groups=")
		if !ok {
			continue
		}
		if !slices.Contains(words, "url=false") {
			text += fmt.Sprintf("group_count = %d\n", strings.Count(groups, ",")+1)
		} else {
			text += "group_name = " + groups + "\nstore_path0 = " + dir + "\n"
		}
		for i, g := range strings.Split(groups, ",") {
			sections += fmt.Sprintf("[group%d]\ngroup_name = %s\nstore_path_count = 1\nstore_path0 = %s/%s\n", i+1, g,
				dir, g)
		}
	}
	if sections == "" {
		text += "store_path_count = 0\n"
	}
	path := filepath.Join(dir, "mod_fastdfs.conf")
	require.NoError(t, os.WriteFile(path, []byte(text+sections), 0o600))
	return path
}

// TestMigrateOutput: each translation is a configuration without errors, and -json prints the same
// result.
func TestMigrateOutput(t *testing.T) {
	for _, name := range []string{"broken", "edge", "guards", "storage"} {
		file := "../../../internal/tools/migrate/testdata/" + name + ".conf"
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		head, _, _ := strings.Cut(string(text), "\n")
		out := filepath.Join(t.TempDir(), "gateway.conf")
		args := []string{"migrate", "-nginx", file}
		if module := moduleFile(t, head); module != "" {
			args = append(args, "--c", module)
		}
		var stdout, stderr bytes.Buffer
		code := Run("v1", append(args, "-o", out), nil, &stdout, &stderr)
		require.Empty(t, stdout.String(), file)
		require.Contains(t, []int{exitOK, exitFailure, exitPartial}, code, stderr.String())
		_, err = os.Stat(out)
		if code == exitFailure {
			require.ErrorIs(t, err, os.ErrNotExist, "nothing is written")
		}
		if err == nil {
			cfg, problems := config.Load(out)
			require.NotNil(t, cfg, "%s: %v", file, problems)
		}
		stderr.Reset()
		require.Equal(t, code, Run("v1", append(args, "-json"), nil, &stdout, &stderr), file)
		var made struct{ Complete bool }
		require.NoError(t, json.Unmarshal(stdout.Bytes(), &made))
		require.Equal(t, code == exitOK, made.Complete, file)
		require.Empty(t, stderr.String(), file)
	}
}

func TestMigrateFails(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(conf, []byte("server { listen 80; location /group1 { ngx_fastdfs_module; } }"),
		0o600))
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"migrate", exitUsage, "-nginx is missing"},
		{"migrate -nginx " + conf + " -o " + conf, exitUsage, "would replace a file"},
		{"migrate -nginx /no/such.conf", exitFailure, "no such file"},
		{"migrate -nginx " + conf + " -c /no/such.conf", exitFailure, "cannot use /no/such.conf"},
		{"migrate -nginx " + conf + " -o /no/such/folder/out", exitFailure, "cannot write the configuration"},
		{"migrate -nginx " + dir, exitFailure, "no regular file"},
		{"migrate -nginx " + conf + " -c /dev/zero", exitFailure, "no regular file"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, c.code, Run("v1", strings.Fields(c.args), nil, &stdout, &stderr), c.args)
		require.Contains(t, stderr.String(), c.says, c.args)
		require.Empty(t, stdout.String(), c.args)
	}
}

// TestMigrateRejected: a part of a result that gateway check rejects is a finding with its line in
// the configuration of nginx.
func TestMigrateRejected(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "nginx.conf")
	text := "server {\n listen 80;\n location /group1/ {\n ngx_fastdfs_module;\n add_header 'X Y' 1;\n }\n}\n"
	require.NoError(t, os.WriteFile(conf, []byte(text), 0o600))
	made, err := translate(conf, moduleFile(t, "# module: groups=group1"), false, i18n.English)
	require.NoError(t, err)
	require.False(t, made.Complete)
	require.Equal(t, 5, made.Findings[len(made.Findings)-1].Line)
	require.Contains(t, made.Findings[len(made.Findings)-1].Text.String(), "gateway check rejects it")
}
