package local

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// openPaths opens the store paths of one group.
func openPaths(t *testing.T, paths ...string) *Store {
	t.Helper()
	l, err := Open(Options{Groups: []GroupPaths{{Name: storetest.Group, StorePaths: paths}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// TestDeleted: a missing file counts as deleted if its store path is sound; otherwise it may be
// lost.
func TestDeleted(t *testing.T) {
	s := storetest.New(t)
	l := openPaths(t, s.Root(storetest.Group, 0), s.Root(storetest.Group, 1))
	body := []byte("hello")
	normal, packed, cut := s.Normal("jpg", body), s.Trunk("jpg", body), s.Normal("jpg", body)
	appender, elsewhere := s.Appender("log", body), s.In(storetest.Group, 1, "jpg", body)
	for _, o := range []storetest.Object{normal, packed, cut, appender, elsewhere} {
		require.False(t, l.Deleted(o.ID, nil, time.Time{}), "it is there")
	}
	require.NoError(t, os.Truncate(cut.Path, 1))
	require.False(t, l.Deleted(cut.ID, nil, time.Time{}), "it is corrupted: a replica has it")
	for _, o := range []storetest.Object{normal, appender, elsewhere} {
		require.NoError(t, os.Remove(o.Path))
		require.True(t, l.Deleted(o.ID, nil, time.Time{}))
	}
	s.Free(packed)
	require.True(t, l.Deleted(packed.ID, nil, time.Time{}))
	require.NoError(t, os.Remove(packed.Path))
	require.True(t, l.Deleted(packed.ID, nil, time.Time{}))

	data := filepath.Join(s.Root(storetest.Group, 0), "data")
	mark := filepath.Join(data, ".recovery.mark")
	require.NoError(t, os.WriteFile(mark, nil, 0o600))
	eventually.True(t, func() bool { return !l.Deleted(normal.ID, nil, time.Time{}) },
		"a lost disk is being brought back")
	require.NoError(t, os.Remove(mark))
	require.True(t, l.Deleted(normal.ID, nil, time.Time{}), "only a sound folder is remembered")
	require.NoError(t, os.RemoveAll(filepath.Join(data, "00", "0A")))
	eventually.True(t, func() bool { return !l.Deleted(normal.ID, nil, time.Time{}) }, "the disk is another one")
	require.NoError(t, os.RemoveAll(data))
	require.ErrorIs(t, l.Ready(), ErrUnavailable)
	require.False(t, l.Deleted(normal.ID, nil, time.Time{}))
}

// TestDeletedRemembersFolders: the known state of a folder holds neither for other folders nor for
// another disk: files in the folders of a lost disk are not deleted.
func TestDeletedRemembersFolders(t *testing.T) {
	s := storetest.New(t)
	l := openPaths(t, s.Root(storetest.Group, 0))
	file := s.Normal("jpg", []byte("hello"))
	require.NoError(t, os.Remove(file.Path))
	require.True(t, l.Deleted(file.ID, nil, time.Time{}))
	for hi := range 4 {
		for lo := range 256 {
			id := file.ID
			id.Logic = fmt.Sprintf("M00/%02X/%02X/%s", 16+hi, lo, filepath.Base(file.ID.Logic))
			require.False(t, l.Deleted(id, nil, time.Time{}), id.Logic)
		}
	}
	data := filepath.Join(s.Root(storetest.Group, 0), "data")
	require.NoError(t, os.Rename(data, data+".old"))
	require.NoError(t, os.Mkdir(data, 0o755))
	require.NoError(t, l.Ready())
	require.False(t, l.Deleted(file.ID, nil, time.Time{}), "another disk is mounted")
}

// TestDeletedTrustsOpen: Deleted does not look again for a file that Open has not found in a folder
// that was known to be sound before. It looks again in all other cases.
func TestDeletedTrustsOpen(t *testing.T) {
	s := storetest.New(t)
	l := openPaths(t, s.Root(storetest.Group, 0))
	file := s.Normal("jpg", []byte("hello"))
	moved := file.Path + ".moved"
	require.NoError(t, os.Rename(file.Path, moved))
	openErr := func() error {
		_, err := l.Open(file.ID)
		return err
	}
	require.ErrorIs(t, openErr(), fdfs.ErrNoFile)
	require.Equal(t, ErrMissing, openErr())
	begin := time.Now()
	require.True(t, l.Deleted(file.ID, ErrMissing, begin))
	eventually.True(t, func() bool { // the folder is known to be sound from now on
		return l.Deleted(file.ID, ErrMissing, time.Now().Add(-time.Millisecond/2))
	}, "it is gone")
	require.NoError(t, os.Rename(moved, file.Path))
	eventually.True(t, func() bool { return l.Deleted(file.ID, ErrMissing, time.Now()) }, "it is not looked for")
	require.False(t, l.Deleted(file.ID, ErrMissing, begin), "Open was called before that was known")
	other := file.ID // in a folder that was not looked at yet
	other.Logic = "M00/1A/2B/" + filepath.Base(file.ID.Logic)
	elsewhere := filepath.Join(s.Root(storetest.Group, 0), "data", other.DiskName())
	require.NoError(t, os.MkdirAll(filepath.Dir(elsewhere), 0o755))
	require.NoError(t, os.WriteFile(elsewhere, []byte("hello"), 0o600))
	require.True(t, l.Deleted(other, ErrMissing, time.Now()), "it is not looked for: no restoration runs")
	require.False(t, l.Deleted(file.ID, errSize, time.Now()))
	require.False(t, l.Deleted(file.ID, fdfs.ErrNoFile, time.Now()))

	link := s.Normal("jpg", []byte("link"))
	require.NoError(t, os.Remove(link.Path))
	require.NoError(t, os.Symlink(file.Path, link.Path))
	require.NoError(t, os.Remove(file.Path))
	_, err := l.Open(link.ID)
	require.ErrorIs(t, err, fdfs.ErrNoFile)
	require.NotEqual(t, ErrMissing, err, "the link is there")
}
