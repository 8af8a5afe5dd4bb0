// Package storetest makes small FastDFS stores for tests: files of every kind, trunk files with
// their slots, links.
//
//	s := storetest.New(t)
//	picture := s.Normal("jpg", content)
//	thumb := s.Slave(picture, "_150x150", "jpg", small)
//	packed := s.Trunk("txt", []byte("hello"))
//	s.Free(packed) // what a delete leaves behind
//	os.WriteFile(conf, []byte(s.Config()), 0o600)
package storetest

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/tools/demo/storewriter"

	"github.com/stretchr/testify/require"
)

// Created is the creation time of all files: long enough ago that no file is still being
// replicated.
var Created = time.Date(2024, 2, 29, 12, 30, 45, 0, time.UTC)

// Changed is the modification time on disk of all files.
var Changed = time.Date(2024, 3, 1, 7, 8, 9, 123456789, time.UTC)

// Group is the first group of the store, and Other the second one on the same host.
const (
	Group = "group1"
	Other = "group2"
)

// Store is a store below a temporary folder: Group with two store paths, Other with one.
type Store struct {
	Dir string // parent of the store paths; it also has the canary, a file that must never be served

	t     testing.TB
	w     storewriter.Writer
	count int // number of results of Bytes
}

// Object is a file in the store.
type Object struct {
	ID      fdfs.FileID
	Content []byte
	Path    string // of the file, or of the trunk file that contains it
}

// URL returns the path of the file in a URL, with the name of the group.
func (o Object) URL() string { return "/" + o.ID.String() }

// Canary is the content of the canary.
const Canary = "canary: this lies outside the store\n"

// New makes an empty store.
func New(t testing.TB) *Store {
	t.Helper()
	s := &Store{Dir: t.TempDir(), t: t}
	require.NoError(t, os.Chmod(filepath.Dir(s.Dir), 0o755)) // the account of the gateway may enter it
	s.w = storewriter.Writer{Root: s.Root, Created: Created, Changed: Changed}
	for _, root := range []string{s.Root(Group, 0), s.Root(Group, 1), s.Root(Other, 0)} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "data", "00", "0A"), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "canary"), []byte(Canary), 0o600))
	return s
}

// Root returns the folder of a store path.
func (s *Store) Root(group string, index int) string {
	return filepath.Join(s.Dir, group, fmt.Sprintf("path%d", index))
}

// Bytes returns n bytes that differ from call to call and are the same in every run.
func (s *Store) Bytes(n int) []byte {
	s.count++
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(s.count), byte(s.count >> 8), 1}).Read(b) // never fails
	return b
}

// fields returns the fields of a new file of Group, in sub directory 00/0A.
func (s *Store) fields(kind fdfs.Kind, ext string, content []byte) fdfs.Fields {
	f := s.w.Fields(kind, ext, content)
	f.High, f.Low = 0, 10
	return f
}

// Normal stores a normal file.
func (s *Store) Normal(ext string, content []byte) Object {
	return s.Put(s.fields(fdfs.KindNormal, ext, content), content)
}

// Appender stores an appender file.
func (s *Store) Appender(ext string, content []byte) Object {
	f := s.fields(fdfs.KindAppender, ext, content)
	f.CRC32 = 0
	return s.Put(f, content)
}

// In stores a normal file in a store path of a group.
func (s *Store) In(group string, index int, ext string, content []byte) Object {
	f := s.fields(fdfs.KindNormal, ext, content)
	f.Group, f.PathIndex = group, index
	return s.Put(f, content)
}

// From stores a normal file that was uploaded to another source.
func (s *Store) From(source fdfs.Source, ext string, content []byte) Object {
	f := s.fields(fdfs.KindNormal, ext, content)
	f.Source = source
	return s.Put(f, content)
}

// Legacy stores a normal file and a file in a slot. Their ids have the CRC32 of FastDFS 5.x.
func (s *Store) Legacy(ext string, content []byte) (normal, packed Object) {
	s.t.Helper()
	f := s.fields(fdfs.KindNormal, ext, content)
	f.CRC32 = checksum.UpdateLegacy(0, content)
	return s.Put(f, content), s.pack(fdfs.SlotFile, ext, content, f.CRC32)
}

// Put stores a file under the id that encodes the fields.
func (s *Store) Put(f fdfs.Fields, content []byte) Object {
	s.t.Helper()
	id, err := s.w.Put(f, content)
	require.NoError(s.t, err)
	return Object{ID: id, Content: content, Path: s.w.Path(id)}
}

// Slave stores a slave file of master.
func (s *Store) Slave(master Object, prefix, ext string, content []byte) Object {
	s.t.Helper()
	id, err := s.w.PutSlave(master.ID, prefix, ext, content)
	require.NoError(s.t, err)
	return Object{ID: id, Content: content, Path: s.w.Path(id)}
}

// Future returns the fields of a file of 7 bytes whose creation time is tomorrow.
func (s *Store) Future(ext string) fdfs.Fields {
	f := s.fields(fdfs.KindNormal, ext, []byte("missing"))
	f.Created = time.Now().Add(24 * time.Hour).Unix()
	return f
}

// Missing returns the id of a file that does not exist.
func (s *Store) Missing(ext string, created time.Time) Object {
	s.t.Helper()
	f := s.fields(fdfs.KindNormal, ext, []byte("missing"))
	f.Created = created.Unix()
	id, err := fdfs.Encode(f)
	require.NoError(s.t, err)
	return Object{ID: id, Path: s.w.Path(id)}
}

// Trunk packs a file into the next slot of trunk file 1.
func (s *Store) Trunk(ext string, content []byte) Object {
	s.t.Helper()
	return s.slot(fdfs.SlotFile, ext, content)
}

// TrunkLink packs a link to another file of the group.
func (s *Store) TrunkLink(target Object) Object {
	s.t.Helper()
	o := s.slot(fdfs.SlotLink, strings.TrimPrefix(filepath.Ext(target.ID.Name), "."), []byte(target.ID.Logic))
	o.Content = target.Content
	return o
}

func (s *Store) slot(typ byte, ext string, content []byte) Object {
	s.t.Helper()
	return s.pack(typ, ext, content, crc32.ChecksumIEEE(content))
}

func (s *Store) pack(typ byte, ext string, content []byte, crc uint32) Object {
	s.t.Helper()
	f := s.fields(fdfs.KindTrunk, ext, content)
	f.CRC32 = crc
	s.w.NextSlot(&f)
	return s.slotOf(f, typ, content)
}

func (s *Store) slotOf(f fdfs.Fields, typ byte, content []byte) Object {
	s.t.Helper()
	id, err := fdfs.Encode(f)
	require.NoError(s.t, err)
	require.NoError(s.t, s.w.WriteSlot(id, typ, content))
	return Object{ID: id, Content: content, Path: s.w.Path(id)}
}

// Free marks the slot of a packed file as FastDFS does when it deletes the file: the content stays
// in the slot.
func (s *Store) Free(packed Object) {
	s.t.Helper()
	require.NoError(s.t, s.w.WriteSlot(packed.ID, fdfs.SlotFree, packed.Content))
}

// Reuse packs another file into the slot of a packed file.
func (s *Store) Reuse(packed Object, ext string, content []byte) Object {
	s.t.Helper()
	f := s.fields(fdfs.KindTrunk, ext, content)
	f.Trunk = packed.ID.Trunk
	return s.slotOf(f, fdfs.SlotFile, content)
}

// Forge packs an upload whose content begins with the header of a slot, and returns it and the file
// whose id leads to that header. The header claims n bytes of content with the CRC32 crc.
func (s *Store) Forge(n int, crc uint32) (upload, forged Object) {
	s.t.Helper()
	f := s.fields(fdfs.KindTrunk, "txt", nil)
	f.Size, f.CRC32 = int64(n), crc
	f.Trunk = fdfs.Trunk{ID: 1, Alloc: uint32(fdfs.SlotHeaderSize + n)}
	id, err := fdfs.Encode(f)
	require.NoError(s.t, err)
	upload = s.Trunk("jpg", append(id.SlotHeader().AppendTo(nil), s.Bytes(1000)...))
	f.Trunk.Offset = upload.ID.Trunk.Offset + fdfs.SlotHeaderSize
	id, err = fdfs.Encode(f)
	require.NoError(s.t, err)
	return upload, Object{ID: id, Path: upload.Path}
}

// Link stores a symbolic link to target, a path. Its id has the size of the target, and the CRC32
// of the path in place of the content.
func (s *Store) Link(ext, target string) Object {
	s.t.Helper()
	f, path := s.fields(fdfs.KindNormal, ext, []byte(target)), target
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.Root(Group, 0), "data", "00", "0A", target)
	}
	if info, err := os.Stat(path); err == nil {
		f.Size = info.Size()
	}
	id, err := fdfs.Encode(f)
	require.NoError(s.t, err)
	o := Object{ID: id, Path: s.w.Path(id)}
	require.NoError(s.t, os.Symlink(target, o.Path))
	return o
}

// Config returns a mod_fastdfs.conf for the store with both groups, and with the name of the group
// in URLs. lines are further keys of the module, then sections.
func (s *Store) Config(lines ...string) string {
	return fmt.Sprintf(
		"base_path = %s\ngroup_name = %s\nurl_have_group_name = true\ngroup_count = 2\n"+
			"load_fdfs_parameters_from_tracker = false\n"+
			"flv_support = true\nflv_extension = flv\nhttp.default_content_type = application/octet-stream\n"+
			"http.mime_types_filename = mime.types\n%s\n"+
			"[group1]\ngroup_name = %s\nstore_path_count = 2\nstore_path0 = %s\nstore_path1 = %s\n[group2]\n"+
			"group_name = %s\nstore_path_count = 1\nstore_path0 = %s\n%s",
		s.Dir, Group, strings.Join(keys(lines), "\n"), Group, s.Root(Group, 0), s.Root(Group, 1), Other,
		s.Root(Other, 0), strings.Join(sections(lines), "\n"))
}

// Types is a mime.types for the extensions that tests use.
const Types = "image/jpeg jpg jpeg\ntext/plain txt log\ntext/html html\nvideo/x-flv flv\nvideo/mp4 mp4\n"

// keys returns the lines before the first section, and sections the others.
func keys(lines []string) []string { return lines[:firstSection(lines)] }

func sections(lines []string) []string { return lines[firstSection(lines):] }

func firstSection(lines []string) int {
	for i, line := range lines {
		if strings.HasPrefix(line, "[") {
			return i
		}
	}
	return len(lines)
}
