package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
)

func TestOpenTrunkLink(t *testing.T) {
	eachOpener(t, func(t *testing.T, s *testStore, l *Store) {
		slot := s.slot(0, fdfs.SlotFile, trunkText(1), nil)
		normal := s.normal("a normal file")
		for i, target := range []struct {
			id   fdfs.FileID
			want string
		}{{slot, trunkText(1)}, {normal, "a normal file"}} {
			link := s.slot(uint32(256+i*256), fdfs.SlotLink, target.id.Logic, nil)
			f := requireContent(t, l, link, target.want)
			require.True(t, f.Linked())
			require.False(t, f.Mutable())
			require.Equal(t, target.id, f.Content())
			require.Equal(t, created, f.ModTime())
		}
		good := s.slot(1024, fdfs.SlotLink, slot.Logic, nil)
		requireMissing(t, l, s.slot(2048, fdfs.SlotLink, good.Logic, nil), errHops) // a link to another link
		for i, bad := range []string{
			"", "../../../../etc/passwd", "/etc/passwd", strings.Repeat("A", 200), normal.Logic + "-m",
			normal.Logic + "\x00",
			normal.String(), "M07" + normal.Logic[3:],
		} {
			requireMissing(t, l, s.slot(uint32(3072+i*512), fdfs.SlotLink, bad, nil), errLink)
		}
		require.NoError(t, os.Remove(s.disk(normal)))
		requireMissing(t, l, s.slot(16384, fdfs.SlotLink, normal.Logic, nil), fdfs.ErrNoFile)
		self := s.slot(20480, fdfs.SlotLink, good.Logic, nil)
		s.writeAt(self, 20480+24, []byte(self.Logic))
		requireMissing(t, l, self, errHops)
	})
}

func TestOpenSymlink(t *testing.T) {
	eachOpener(t, func(t *testing.T, s *testStore, l *Store) {
		target := s.normal("the target")
		data := filepath.Join(s.paths["group1"][0], "data")
		m01 := s.write(s.id(fdfs.KindNormal, "M01", func(f *fdfs.Fields) { f.PathIndex = 1 }), "M01")
		first := s.link(s.disk(target))
		for name, link := range map[string]struct {
			target string
			id     fdfs.FileID
			want   string
		}{
			"absolute":               {s.disk(target), target, "the target"},
			"the other store path":   {s.disk(m01), m01, "M01"},
			"relative":               {target.Name, target, "the target"},
			"relative, up":           {"../01/" + target.Name, target, "the target"},
			"relative, out and back": {"../../../data/0A/01/../01/" + target.Name, target, ""},
			"not clean":              {data + "//0A/./02/../01/" + target.Name, target, "the target"},
			"a link":                 {s.disk(first), target, "the target"},
		} {
			id := s.link(link.target)
			if link.want == "" {
				requireMissing(t, l, id, errLink)
				continue
			}
			f := requireContent(t, l, id, link.want)
			require.True(t, f.Linked(), name)
			require.Equal(t, link.id.Logic, f.Content().Logic, name)
			require.Equal(t, created, f.ModTime(), name)
		}
		slave, err := fdfs.EncodeSlave(target, "_x", "txt")
		require.NoError(t, err)
		require.NoError(t, os.Symlink(s.disk(target), s.disk(slave)))
		f := requireContent(t, l, slave, "the target")
		require.True(t, f.Mutable())
		require.True(t, written.Equal(f.ModTime()))
	})
}

func TestOpenBadSymlink(t *testing.T) {
	eachOpener(t, func(t *testing.T, s *testStore, l *Store) {
		target := s.normal("the target")
		root := s.paths["group1"][0]
		canary := filepath.Join(s.base, target.Name)
		require.NoError(t, os.WriteFile(canary, []byte("the target"), 0o644))
		beside := filepath.Join(root, "database", "0A", "01")
		require.NoError(t, os.MkdirAll(beside, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(beside, target.Name), []byte("the target"), 0o644))
		require.NoError(t, os.WriteFile(s.disk(target)+"-m", []byte("metadata"), 0o644))
		other := s.write(s.id(fdfs.KindNormal, "group2", func(f *fdfs.Fields) { f.Group = "group2" }), "group2")
		for _, bad := range []string{
			"/etc/passwd", canary, "../../../../" + target.Name, "../../../" + target.Name,
			filepath.Join(beside, target.Name),
			root + "/data/../database/0A/01/" + target.Name, root + "/data", root + "/data/", "/", ".", "..",
			"../../..",
			s.disk(target) + "-m", s.disk(other), "/proc/self/fd/0", "/proc/self/root" + s.disk(target),
			root + "/data/0A/01/../../../../../../../../etc/passwd", root + "/data/0A/01/000001", s.disk(target) + "/",
		} {
			id := s.link(bad)
			if bad == s.disk(target)+"/" { // the lexical form names the target itself
				requireContent(t, l, id, "the target")
				continue
			}
			requireMissing(t, l, id, errLink)
		}
		dangling := s.id(fdfs.KindNormal, "gone", nil)
		requireMissing(t, l, s.link(s.disk(dangling)), fdfs.ErrNoFile)

		chain := s.link(s.disk(target))
		for range maxHops {
			chain = s.link(s.disk(chain))
		}
		requireMissing(t, l, chain, errHops)
		self := s.link("self")
		require.NoError(t, os.Remove(s.disk(self)))
		require.NoError(t, os.Symlink(s.disk(self), s.disk(self)))
		requireMissing(t, l, self, errHops)
	})
}

// TestOpenSymlinkedFolder: a symbolic link in place of a folder is not followed, even if its target
// is inside of the data folder.
func TestOpenSymlinkedFolder(t *testing.T) {
	eachOpener(t, func(t *testing.T, s *testStore, l *Store) {
		data := filepath.Join(s.paths["group1"][0], "data")
		target := s.normal("the target")
		outside := filepath.Join(s.base, "outside", "01")
		require.NoError(t, os.MkdirAll(outside, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(outside, target.Name), []byte("the target"), 0o644))
		require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Join(data, "0B")))
		require.NoError(t, os.Symlink(outside, filepath.Join(data, "0A", "03")))
		require.NoError(t, os.Symlink("01", filepath.Join(data, "0A", "04")))
		for _, dirs := range []string{"0B/01", "0A/03", "0A/04"} {
			id, err := fdfs.Parse("group1/M00/" + dirs + "/" + target.Name)
			require.NoError(t, err)
			_, err = l.Open(id)
			require.ErrorIs(t, err, fdfs.ErrNoFile, dirs)
		}
		requireContent(t, l, target, "the target")
	})
}

// TestStorePathThroughSymlink: the store path may be a symbolic link, and links on disk may contain
// either form of it.
func TestStorePathThroughSymlink(t *testing.T) {
	s := newTestStore(t)
	target := s.normal("the target")
	alias := filepath.Join(s.base, "alias")
	require.NoError(t, os.Symlink(s.paths["group1"][0], alias))
	l, err := Open(Options{Groups: []GroupPaths{{"group1", []string{alias + "/"}}}})
	require.NoError(t, err)
	defer l.Close()
	requireContent(t, l, target, "the target")
	requireContent(t, l, s.link(s.disk(target)), "the target")
	requireContent(t, l, s.link(filepath.Join(alias, "data", target.TrueName())), "the target")
	path, err := l.Path(target)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(alias, "data", target.TrueName()), path)
}

// FuzzLinkTarget: each target of a link is rejected, or is a file in a data folder of the group.
func FuzzLinkTarget(f *testing.F) {
	const name = "Ck0AC2sASyqAcBY-AAAQAGl9Edk537.jpg"
	for _, target := range []string{name, "../03/" + name, "/a/data/00/03/" + name, "/b/c/data/0A/01/" + name,
		"/etc/passwd",
		"/a/data/../../etc/passwd", "../../../../etc/passwd", "/a/data/00/03/" + name + "-m",
		"/a/database/00/03/" + name, "", "/", "."} {
		f.Add(target)
	}
	l := &Store{groups: map[string][]*storePath{"group1": {{root: "/a"}, {root: "/b/c"}}}}
	link, err := fdfs.ParseLogic("group1", "M01/0A/01/"+name)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, target string) {
		id, err := l.linkTarget(link, target)
		if err != nil {
			require.Equal(t, errLink, err)
			return
		}
		require.Equal(t, "group1", id.Group)
		require.Regexp(t, `^[0-9A-F]{2}/[0-9A-F]{2}/[A-Za-z0-9._-]+$`, id.TrueName())
		require.NotRegexp(t, `-m$`, id.Name)
		disk := filepath.Join(l.groups["group1"][id.PathIndex].root, "data", id.TrueName())
		if filepath.IsAbs(target) {
			require.Equal(t, disk, filepath.Clean(target))
		} else {
			require.Equal(t, disk, filepath.Join("/b/c/data/0A/01", target))
		}
	})
}
