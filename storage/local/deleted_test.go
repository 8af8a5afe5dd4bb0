package local

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// A file is deleted when its store path is sound and has it no more; else it may be lost.
func TestDeleted(t *testing.T) {
	s := storetest.New(t)
	paths := []string{s.Root(storetest.Group, 0), s.Root(storetest.Group, 1)}
	l, err := Open(Options{Groups: []GroupPaths{{Name: storetest.Group, StorePaths: paths}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	body := []byte("hello")
	normal, packed, cut := s.Normal("jpg", body), s.Trunk("jpg", body), s.Normal("jpg", body)
	appender, elsewhere := s.Appender("log", body), s.In(storetest.Group, 1, "jpg", body)
	for _, o := range []storetest.Object{normal, packed, cut, appender, elsewhere} {
		require.False(t, l.Deleted(o.ID), "it is there")
	}
	require.NoError(t, os.Truncate(cut.Path, 1))
	require.False(t, l.Deleted(cut.ID), "it is damaged: a replica has it")
	for _, o := range []storetest.Object{normal, appender, elsewhere} {
		require.NoError(t, os.Remove(o.Path))
		require.True(t, l.Deleted(o.ID))
	}
	s.Free(packed)
	require.True(t, l.Deleted(packed.ID))
	require.NoError(t, os.Remove(packed.Path))
	require.True(t, l.Deleted(packed.ID))

	data := filepath.Join(s.Root(storetest.Group, 0), "data")
	mark := filepath.Join(data, ".recovery.mark")
	require.NoError(t, os.WriteFile(mark, nil, 0o600))
	eventually.True(t, func() bool { return !l.Deleted(normal.ID) }, "a lost disk is being brought back")
	require.NoError(t, os.Remove(mark))
	require.True(t, l.Deleted(normal.ID), "only a sound folder is remembered")
	require.NoError(t, os.RemoveAll(filepath.Join(data, "00", "0A")))
	eventually.True(t, func() bool { return !l.Deleted(normal.ID) }, "the disk is another one")
	require.NoError(t, os.RemoveAll(data))
	require.ErrorIs(t, l.Ready(), ErrUnavailable)
	require.False(t, l.Deleted(normal.ID))
}

// The folders of a lost disk are not deleted files: what is remembered of one folder does not hold
// for others, nor for another disk.
func TestDeletedRemembersFolders(t *testing.T) {
	s := storetest.New(t)
	group := GroupPaths{Name: storetest.Group, StorePaths: []string{s.Root(storetest.Group, 0)}}
	l, err := Open(Options{Groups: []GroupPaths{group}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	file := s.Normal("jpg", []byte("hello"))
	require.NoError(t, os.Remove(file.Path))
	require.True(t, l.Deleted(file.ID))
	for hi := range 4 {
		for lo := range 256 {
			id := file.ID
			id.Logic = fmt.Sprintf("M00/%02X/%02X/%s", 16+hi, lo, filepath.Base(file.ID.Logic))
			require.False(t, l.Deleted(id), id.Logic)
		}
	}
	data := filepath.Join(s.Root(storetest.Group, 0), "data")
	require.NoError(t, os.Rename(data, data+".old"))
	require.NoError(t, os.Mkdir(data, 0o755))
	require.NoError(t, l.Ready())
	require.False(t, l.Deleted(file.ID), "another disk is mounted")
}
