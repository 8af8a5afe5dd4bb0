package tier_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
)

// tree lists the files and folders below a folder, with their modes.
func tree(t *testing.T, path string) map[string]fs.FileMode {
	t.Helper()
	all := map[string]fs.FileMode{}
	require.NoError(t, filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		all[p] = info.Mode()
		return err
	}))
	return all
}

// plant makes files, and folders for names with a slash at the end, below a folder.
func plant(t *testing.T, path string, names ...string) {
	t.Helper()
	for _, name := range names {
		p := filepath.Join(path, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		if name[len(name)-1] == '/' {
			require.NoError(t, os.MkdirAll(p, 0o755))
			continue
		}
		require.NoError(t, os.WriteFile(p, []byte("mine"), 0o644))
	}
}

// TestForeignFolder: a folder with other content than a cache is rejected, and nothing in it
// changes.
func TestForeignFolder(t *testing.T) {
	for name, names := range map[string][]string{
		"store":          {"data/00/00/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg", "data/storage_stat.dat"},
		"data of store":  {"00/00/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg", "01/02/", "0A/"},
		"git":            {"00/2a7d15c8c3fd3b1fd1d5a5c0e3d5a2f3c1b0a9", "info/", "pack/"},
		"hidden file":    {".bashrc"},
		"without marker": {"a7/group1+M00+00+00+a+0.seg"},
		"no marker":      {"fastdfs-gateway-cache/"},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			plant(t, path, names...)
			before := tree(t, path)
			_, err := tier.OpenDisk(tier.DiskOptions{Path: path})
			require.ErrorContains(t, err, "neither empty nor a cache of a gateway")
			require.Equal(t, before, tree(t, path))
			require.ErrorContains(t, tier.CheckFolder(path), "neither empty nor a cache of a gateway")
			require.Equal(t, before, tree(t, path))
		})
	}
}

// TestLinkOutOfTheFolder: a symbolic link in the folder of a cache is not followed.
func TestLinkOutOfTheFolder(t *testing.T) {
	for _, name := range []string{"00", "ff"} {
		path, outside := t.TempDir(), t.TempDir()
		plant(t, outside, "17", "precious")
		require.NoError(t, openDisk(t, tier.DiskOptions{Path: path}).Close())
		require.NoError(t, os.Remove(filepath.Join(path, name)))
		require.NoError(t, os.Symlink(outside, filepath.Join(path, name)))
		before := tree(t, outside)
		_, err := tier.OpenDisk(tier.DiskOptions{Path: path})
		require.ErrorContains(t, err, "is no folder")
		require.Equal(t, before, tree(t, outside))
	}
}

// TestLinkMadeLater: a symbolic link that replaces a folder while the gateway runs is not followed.
func TestLinkMadeLater(t *testing.T) {
	path, outside := t.TempDir(), t.TempDir()
	d := listed(t, openDisk(t, tier.DiskOptions{Path: path}))
	s := small(1, 1000)
	require.True(t, d.Put(s))
	d.Settle()
	stored := files(t, path)
	require.Len(t, stored, 1)
	folder := filepath.Dir(stored[0])
	victim := filepath.Join(outside, filepath.Base(stored[0]))
	require.NoError(t, os.Rename(stored[0], victim))
	require.NoError(t, os.Remove(folder))
	require.NoError(t, os.Symlink(outside, folder))
	d.Purge(tier.MatchAll)
	d.Put(s)
	d.Settle()
	require.Equal(t, 2, len(tree(t, outside)))
	require.FileExists(t, victim)
}

// TestClosedToOthers: the next process removes the permissions of other users, and the temporary
// file of a writer.
func TestClosedToOthers(t *testing.T) {
	path := t.TempDir()
	d := openDisk(t, tier.DiskOptions{Path: path})
	s := small(1, 1000)
	require.True(t, d.Put(s))
	d.Settle()
	require.NoError(t, d.Close())
	plant(t, path, "purges-applied", "lost+found/", "segment.new")
	for _, folder := range []string{"00", "ff"} {
		require.NoError(t, os.Chmod(filepath.Join(path, folder), 0o755))
	}
	require.NoError(t, tier.CheckFolder(path))
	d = listed(t, openDisk(t, tier.DiskOptions{Path: path}))
	view, ok := d.Get(s.Key, s.Version, true)
	require.True(t, ok)
	view.Release()
	for p, mode := range tree(t, path) {
		switch {
		case p == path, filepath.Base(p) == "purges-applied", filepath.Base(p) == "lost+found":
		case mode.IsDir():
			require.Equal(t, fs.ModeDir|0o700, mode, p)
		default:
			require.Equal(t, fs.FileMode(0o600), mode, p)
		}
	}
	require.NoFileExists(t, filepath.Join(path, "segment.new"))
}

// TestCheckFolder: CheckFolder accepts a missing folder and an empty one.
func TestCheckFolder(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, tier.CheckFolder(path))
	require.NoError(t, tier.CheckFolder(filepath.Join(path, "no", "such")))
	require.Empty(t, files(t, path))
}
