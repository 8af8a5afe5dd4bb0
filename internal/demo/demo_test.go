package demo

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"image"
	_ "image/jpeg" // to decode
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

var now = time.Unix(1795181354, 0)

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	s, err := Write(dir, now, Options{})
	require.NoError(t, err)
	require.Equal(t, dir, s.Dir)

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
		switch f.Title {
		case "picture", "thumbnail", "packed picture":
			_, _, err := image.Decode(bytes.NewReader(content))
			require.NoError(t, err)
		case "film":
			require.Equal(t, "\x1a\x45\xdf\xa3", string(content[:4]), "Matroska")
		case "flv film":
			requireFLV(t, content)
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
	t.Run("again", func(t *testing.T) { requireWrittenAgain(t, s) })
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

// requireFLV follows the tags to the end of the film.
func requireFLV(t *testing.T, b []byte) {
	require.Equal(t, "FLV\x01\x01\x00\x00\x00\x09\x00\x00\x00\x00", string(b[:13]))
	for b = b[13:]; len(b) > 0; {
		n := 11 + (int(b[1])<<16 | int(b[2])<<8 | int(b[3]))
		require.Contains(t, []byte{9, 18}, b[0]) // picture or script
		require.GreaterOrEqual(t, len(b), n+4)
		require.Equal(t, n, int(b[n])<<24|int(b[n+1])<<16|int(b[n+2])<<8|int(b[n+3]))
		b = b[n+4:]
	}
}

// requireWrittenAgain writes a store a second time: that costs as much as the first time.
func requireWrittenAgain(t *testing.T, first Store) {
	before := listing(t, first.Dir)
	film := filepath.Join(first.StorePaths[0], "data", first.Files[2].ID.TrueName())
	require.NoError(t, os.Truncate(film, 10))
	again, err := Write(first.Dir, now.Add(time.Hour), Options{})
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, before, listing(t, first.Dir), "a valid file is not written again, a corrupted one is repaired")
}

// TestIndex: the page leads to every file, and to what is given to it, and escapes it.
func TestIndex(t *testing.T) {
	s, err := Write(t.TempDir()+"/demo", now, Options{})
	require.NoError(t, err)
	page, err := s.Index(Links{Status: "http://localhost:1/status", Rejected: "http://h/a",
		Token: `http://h/a?token="><script>`})
	require.NoError(t, err)
	for _, f := range s.Files {
		require.Contains(t, string(page), `href="/`+f.ID.String()+`"`)
	}
	require.Contains(t, string(page), `href="http://localhost:1/status"`)
	require.NotContains(t, string(page), "<script")
	require.Equal(t, 1, strings.Count(string(page), "<video"))
	require.Equal(t, 1, strings.Count(string(page), "<audio"))
}

// listing is every file with its size and time.
func listing(t *testing.T, dir string) map[string]string {
	found := map[string]string{}
	require.NoError(t, filepath.Walk(dir, func(name string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			found[name] = fmt.Sprint(info.Size(), info.ModTime())
		}
		return err
	}))
	return found
}

func TestConfigurations(t *testing.T) {
	dir := t.TempDir()
	s, err := Store{Dir: dir, StorePaths: []string{dir + "/store0", dir + "/store1"}}.configured(
		Options{Listen: "127.0.0.1:1", TokenListen: "127.0.0.1:2", AdminListen: "127.0.0.1:3"})
	require.NoError(t, err)
	for _, test := range []struct {
		file, listen, admin string
		token               bool
	}{{s.Config, "127.0.0.1:1", "127.0.0.1:3", false}, {s.TokenConfig, "127.0.0.1:2", "", true}} {
		c, problems := config.Load(test.file)
		require.Empty(t, problems)
		require.NotNil(t, c)
		require.Equal(t, []string{test.listen}, c.Gateway.Listen)
		require.Equal(t, test.admin, c.Gateway.AdminListen)
		require.True(t, c.URLHasGroupName)
		require.Equal(t, test.token, c.AntiSteal.CheckToken)
		require.Len(t, c.Groups, 1)
		require.Equal(t, s.StorePaths, c.Groups[0].StorePaths)
		if test.token {
			require.Equal(t, Secret, c.AntiSteal.Secret)
			require.FileExists(t, c.AntiSteal.FailFile)
		}
	}
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
