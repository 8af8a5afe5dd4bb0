package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/internal/tools/demo/storewriter"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// created is the creation time in the ids of all test files, written is their modification time on
// disk.
var (
	created = time.Unix(1795181354, 0)
	written = time.Unix(1795181999, 123456789)
)

// testStore writes files into two groups in a temporary folder: group1 with two store paths, group2
// with one.
type testStore struct {
	t     testing.TB
	base  string
	paths map[string][]string
	w     storewriter.Writer
}

// openers are the implementations of opening a file beneath a folder. All tests run with each.
var openers = map[string]opener{"openat2": openat2, "walk": walk}

// eachOpener runs test with each opener. At the end no descriptor may be open.
func eachOpener(t *testing.T, test func(t *testing.T, s *testStore, l *Store)) {
	for name, open := range openers {
		t.Run(name, func(t *testing.T) {
			before := descriptors(t)
			s := newTestStore(t)
			l := s.local()
			l.opener = open
			test(t, s, l)
			require.NoError(t, l.Close())
			require.Equal(t, before, descriptors(t), "descriptors left open")
		})
	}
}

func newTestStore(t testing.TB) *testStore {
	base := t.TempDir()
	s := &testStore{t: t, base: base, paths: map[string][]string{
		"group1": {filepath.Join(base, "g1p0"), filepath.Join(base, "g1p1")},
		"group2": {filepath.Join(base, "g2p0")},
	}}
	s.w = storewriter.Writer{Root: func(group string, index int) string { return s.paths[group][index] },
		Created: created, Changed: written}
	for _, roots := range s.paths {
		for _, root := range roots {
			require.NoError(t, os.MkdirAll(filepath.Join(root, "data", "0A", "01"), 0o755))
			require.NoError(t, os.MkdirAll(filepath.Join(root, "data", "0A", "02"), 0o755))
		}
	}
	return s
}

func (s *testStore) options() Options {
	return Options{Groups: []GroupPaths{{"group1", s.paths["group1"]}, {"group2", s.paths["group2"]}}}
}

func (s *testStore) local() *Store {
	l, err := Open(s.options())
	require.NoError(s.t, err)
	require.NoError(s.t, l.Ready())
	return l
}

// id makes an id in group1, store path 0.
func (s *testStore) id(kind fdfs.Kind, content string, change func(f *fdfs.Fields)) fdfs.FileID {
	f := s.w.Fields(kind, "txt", []byte(content))
	f.High, f.Low, f.Source = 0x0A, 1, fdfs.Source{10, 0, 0, 1}
	if change != nil {
		change(&f)
	}
	id, err := fdfs.Encode(f)
	require.NoError(s.t, err)
	return id
}

func (s *testStore) disk(id fdfs.FileID) string { return s.w.Path(id) }

func (s *testStore) write(id fdfs.FileID, content string) fdfs.FileID {
	require.NoError(s.t, os.WriteFile(s.disk(id), []byte(content), 0o644))
	require.NoError(s.t, os.Chtimes(s.disk(id), written, written))
	return id
}

func (s *testStore) normal(content string) fdfs.FileID {
	return s.write(s.id(fdfs.KindNormal, content, nil), content)
}

// slot writes content into a slot of trunk file 1 at offset.
func (s *testStore) slot(offset uint32, typ byte, content string, change func(f *fdfs.Fields)) fdfs.FileID {
	id := s.id(fdfs.KindTrunk, content, func(f *fdfs.Fields) {
		f.Trunk = fdfs.Trunk{ID: 1, Offset: offset, Alloc: uint32(len(content)+24+255) &^ 255}
		if change != nil {
			change(f)
		}
	})
	header := id.SlotHeader()
	header.Type = typ
	s.writeAt(id, int64(offset), append(header.AppendTo(nil), content...))
	return id
}

func (s *testStore) writeAt(id fdfs.FileID, off int64, b []byte) {
	f, err := os.OpenFile(s.disk(id), os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(s.t, err)
	defer f.Close()
	_, err = f.WriteAt(b, off)
	require.NoError(s.t, err)
}

// link makes a symbolic link for a new id, with any target.
func (s *testStore) link(target string) fdfs.FileID {
	id := s.id(fdfs.KindNormal, "a link's id has a size of its own", nil)
	require.NoError(s.t, os.Symlink(target, s.disk(id)))
	return id
}

// requireContent opens id, and compares its size and its content, as read by both functions.
func requireContent(t testing.TB, l *Store, id fdfs.FileID, want string) *File {
	f, err := l.Open(id)
	require.NoError(t, err, id)
	require.EqualValues(t, len(want), f.Size())
	b, err := contenttest.ReadAll(f, f.Size())
	require.NoError(t, err)
	require.Equal(t, want, string(b))
	raw := make([]byte, len(want))
	require.NoError(t, readFromSlot(f.disk, raw, f.Base()))
	require.Equal(t, want, string(raw))
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	return f
}

func requireMissing(t testing.TB, l *Store, id fdfs.FileID, why error) {
	f, err := l.Open(id)
	require.ErrorIs(t, err, fdfs.ErrNoFile, id)
	if err == ErrMissing { // the usual form of fdfs.ErrNoFile
		err = fdfs.ErrNoFile
	}
	require.Equal(t, why, err, id)
	require.Nil(t, f)
}

// descriptors returns the number of open descriptors of this process. The pipe comes first, because
// the first pipe, socket or timer makes the runtime open some.
func descriptors(t testing.TB) int {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, errors.Join(r.Close(), w.Close()))
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

func trunkText(n int) string { return fmt.Sprintf("content of slot %d", n) }
