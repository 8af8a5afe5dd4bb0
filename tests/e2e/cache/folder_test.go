package cache

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// contents returns the content of each file below a folder, and the type of all else, by path.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		all[path] = d.Type().String()
		if d.Type().IsRegular() {
			b, err := os.ReadFile(path)
			all[path] = string(b)
			return err
		}
		return nil
	}))
	return all
}

// requireRejected requires that a gateway does not start, that `check` fails, and that both print
// the reason and the key disk_path.
func requireRejected(t *testing.T, conf, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), e2e.Prompt)
	defer cancel()
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, e2e.Binary, "serve", "-c", conf)
	cmd.Stderr = &log
	require.Error(t, cmd.Run())
	require.NoError(t, ctx.Err(), "it serves: %s", log.String())
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Contains(t, log.String(), why)
	require.Contains(t, log.String(), "disk_path")
	code, stdout, _ := e2e.Run(t, "check", "-c", conf)
	require.Equal(t, 1, code)
	require.Contains(t, stdout, why)
	require.Contains(t, stdout, "disk_path")
}

// TestWrongDiskPath: a disk_path in a store, or with files of other programs, is rejected, and the
// folder stays unchanged.
func TestWrongDiskPath(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	s.Normal("jpg", s.Bytes(100))
	s.Trunk("jpg", s.Bytes(100))
	root := s.Root(storetest.Group, 0)
	objects := filepath.Join(t.TempDir(), "objects")
	for _, name := range []string{"00/2a7d15c8c3fd3b1fd1d5a5c0e3d5a2f3c1b0a9", "pack/pack-1.idx", "tmp/precious",
		"ff/0b7d15c8c3fd3b1fd1d5a5c0e3d5a2f3c1b0a9"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(objects, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(objects, name), []byte("precious"), 0o644))
	}
	for _, c := range []struct{ name, path, why string }{
		{"store", root, "lies in the store path"},
		{"objects of git", objects, "neither empty nor a cache of a gateway"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store, git := contents(t, s.Dir), contents(t, filepath.Dir(objects))
			conf := e2e.WriteConfig(t, s.Config(e2e.WithListen([]string{"[cache]", "disk_path = " + c.path})...))
			requireRejected(t, conf, c.why)
			require.Equal(t, store, contents(t, s.Dir))
			require.Equal(t, git, contents(t, filepath.Dir(objects)))
		})
	}
	// The configuration has no store path of that group, so only the content of the folder shows
	// the mistake.
	t.Run("store of another group", func(t *testing.T) {
		before := contents(t, s.Dir)
		c := e2e.NewCluster(t, fdfstest.Options{})
		requireRejected(t, e2e.WriteConfig(t, e2e.EdgeConfig(c, "[cache]", "disk_path = "+filepath.Join(root, "data"))),
			"neither empty nor a cache of a gateway")
		require.Equal(t, before, contents(t, s.Dir))
	})
}
