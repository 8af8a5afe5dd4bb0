package storewriter

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
)

// TestWriteAgain: a second writer returns the same ids, writes no file that is right, and repairs
// the others.
func TestWriteAgain(t *testing.T) {
	dir := t.TempDir()
	created, changed := time.Unix(1795181354, 0), time.Unix(1795181999, 0)
	write := func() (ids []fdfs.FileID, w *Writer) {
		w = &Writer{Root: func(group string, _ int) string { return filepath.Join(dir, group) }, Created: created,
			Changed: changed}
		for _, text := range []string{"one", "two"} {
			id, err := w.Put(w.Fields(fdfs.KindNormal, "txt", []byte(text)), []byte(text))
			require.NoError(t, err)
			f := w.Fields(fdfs.KindTrunk, "txt", []byte(text))
			f.High, f.Low = 0, 0
			w.NextSlot(&f)
			packed, err := w.Put(f, []byte(text))
			require.NoError(t, err)
			ids = append(ids, id, packed)
		}
		slave, err := w.PutSlave(ids[0], "_x", "txt", []byte("small"))
		require.NoError(t, err)
		return append(ids, slave), w
	}
	ids, w := write()
	trunk, err := os.ReadFile(w.Path(ids[1]))
	require.NoError(t, err)
	require.Len(t, trunk, 512, "two slots")
	info, err := os.Stat(w.Path(ids[4]))
	require.NoError(t, err)
	require.Equal(t, changed, info.ModTime())

	before := time.Unix(1700000000, 0)
	require.NoError(t, os.Chtimes(w.Path(ids[1]), before, before))
	require.NoError(t, os.Chtimes(w.Path(ids[0]), before, before))
	require.NoError(t, os.Truncate(w.Path(ids[2]), 1))
	again, _ := write()
	require.Equal(t, ids, again)
	for _, id := range ids[:2] {
		info, err := os.Stat(w.Path(id))
		require.NoError(t, err)
		require.Equal(t, before, info.ModTime(), "it was right")
	}
	text, err := os.ReadFile(w.Path(ids[2]))
	require.NoError(t, err)
	require.Equal(t, "two", string(text))

	require.NoError(t, os.Truncate(w.Path(ids[1]), 300))
	write()
	mended, err := os.ReadFile(w.Path(ids[1]))
	require.NoError(t, err)
	require.Equal(t, trunk, mended)
}

func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), nil, 0o600))
	w := &Writer{Root: func(string, int) string { return dir }, Created: time.Unix(1795181354, 0)}
	_, err := w.Put(w.Fields(fdfs.KindNormal, "txt", nil), nil)
	require.ErrorContains(t, err, "cannot make folder")
	f := w.Fields(fdfs.KindTrunk, "txt", nil)
	w.NextSlot(&f)
	_, err = w.Put(f, nil)
	require.ErrorContains(t, err, "cannot make folder")
	_, err = w.Put(w.Fields(fdfs.KindNormal, "toolong", nil), nil)
	require.ErrorIs(t, err, fdfs.ErrEncode)
}
