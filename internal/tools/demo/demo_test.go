package demo

import (
	"fastdfs-gateway/internal/i18n"

	"bytes"
	"hash/crc32"
	"image"
	_ "image/jpeg" // registers the decoder
	_ "image/png"
	"os"
	"path/filepath"
	"strings"
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
		switch f.Title.String() {
		case "picture", "thumbnail", "packed picture":
			_, _, err := image.Decode(bytes.NewReader(content))
			require.NoError(t, err)
		case "film":
			require.Equal(t, "\x1a\x45\xdf\xa3", string(content[:4]), "Matroska")
		case "flv film":
			require.Equal(t, "FLV\x01\x01\x00\x00\x00\x09\x00\x00\x00\x00", string(content[:13]))
		case "sound":
			require.Equal(t, "OggS", string(content[:4]))
		case "long text":
			require.Greater(t, len(content), 8<<20, "of several segments")
		}
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

// TestIndex: the page has links to every file and to the given URLs, and escapes them.
func TestIndex(t *testing.T) {
	s, err := Write(t.TempDir()+"/demo", now, Options{})
	require.NoError(t, err)
	page, err := s.Index(Links{Status: "http://localhost:1/status", Rejected: "http://h/a",
		Token: `http://h/a?token="><script>`}, i18n.English)
	require.NoError(t, err)
	for _, f := range s.Files {
		require.Contains(t, string(page), `href="/`+f.ID.String()+`"`)
	}
	require.Contains(t, string(page), `href="http://localhost:1/status"`)
	require.NotContains(t, string(page), "<script")
	require.Equal(t, 1, strings.Count(string(page), "<video"))
	require.Equal(t, 1, strings.Count(string(page), "<audio"))
	page, err = s.Index(Links{}, i18n.Chinese)
	require.NoError(t, err)
	require.Contains(t, string(page), `<html lang="zh-CN">`)
	require.Contains(t, string(page), ">图片<")
	require.NotContains(t, string(page), "Demonstration")
}

func TestWriteRejects(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "precious"), []byte("x"), 0o644))
	_, err := Write(dir, now, Options{})
	require.ErrorIs(t, err, ErrNotOurs)
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
