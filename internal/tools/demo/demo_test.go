package demo

import (
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/storage/local"

	"github.com/stretchr/testify/require"
)

var (
	now       = time.Unix(1795181354, 0)
	addresses = Options{Listen: "127.0.0.1:1", TokenListen: "127.0.0.1:2", AdminListen: "127.0.0.1:3"}
)

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	s, err := Write(dir, now, addresses)
	require.NoError(t, err)
	require.Equal(t, dir, s.Dir)
	for _, file := range []string{s.Config, s.TokenConfig} {
		_, problems := config.Load(file)
		require.Empty(t, problems)
	}

	l, err := local.Open(local.Options{Groups: []local.GroupPaths{{Name: Group, StorePaths: s.StorePaths}}})
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, l.Ready())
	kinds, paths := map[fdfs.Kind]int{}, map[int]int{}
	for _, f := range s.Files {
		content := read(t, l, f)
		kinds[f.ID.Kind]++
		paths[f.ID.PathIndex]++
		require.Equal(t, now.Unix(), f.ID.Created)
		if f.ID.Immutable() {
			require.Equal(t, f.Size, f.ID.Size)
			require.Equal(t, crc32.ChecksumIEEE(content), f.ID.CRC32, f.Title)
		}
		addr, ok := f.ID.Source.Addr()
		require.True(t, ok)
		require.True(t, addr.IsLoopback())
		require.NotEmpty(t, f.ContentType)
	}
	wanted := map[fdfs.Kind]int{fdfs.KindNormal: 5, fdfs.KindSlave: 1, fdfs.KindAppender: 1, fdfs.KindTrunk: 4}
	require.Equal(t, wanted, kinds)
	require.Equal(t, map[int]int{0: 9, 1: 2}, paths)
	again, err := Write(dir, now.Add(time.Hour), addresses)
	require.NoError(t, err)
	require.Equal(t, s, again)
}

func read(t *testing.T, l *local.Store, want File) []byte {
	f, err := l.Open(want.ID)
	require.NoError(t, err, want.Title)
	defer f.Close()
	require.Equal(t, want.Size, f.Size())
	b, err := contenttest.ReadAll(f, f.Size())
	require.NoError(t, err)
	require.NotEmpty(t, b)
	return b
}

func TestWriteRejects(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "precious"), []byte("x"), 0o644))
	_, err := Write(dir, now, Options{})
	require.ErrorContains(t, err, "folder is not empty and no demonstration store")
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)

	for _, name := range []string{"a\nb", "a "} {
		_, err = Write(filepath.Join(t.TempDir(), name), now, Options{})
		require.Error(t, err)
	}
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, markName), []byte("yesterday"), 0o644))
	_, err = Write(dir, now, Options{})
	require.ErrorContains(t, err, "unix time")
}
