// Package storewriter writes files into store paths as a FastDFS storage does: for the
// demonstration, for tests and for benchmarks.
//
//	w := &storewriter.Writer{Root: func(group string, index int) string { return "/srv/store" }, Created: now}
//	id, err := w.Put(w.Fields(fdfs.KindNormal, "jpg", content), content)
//	...
//	f := w.Fields(fdfs.KindTrunk, "txt", text)
//	w.NextSlot(&f)
//	id, err = w.Put(f, text) // into a slot of trunk file 1
//
// The same calls make the same ids and files. Files that already have the right content are not
// written again.
package storewriter

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// Writer writes the files of one storage, 127.0.0.1. Only one goroutine may use it.
type Writer struct {
	Root    func(group string, index int) string // folder of a store path
	Created time.Time                            // of all files, in whole seconds
	Changed time.Time                            // modification time on disk of single files; default: Created

	count uint32
	slots map[string]uint32 // end of the last slot of each trunk file
}

// Fields returns the fields of a new file of group1, in a sub directory that depends on the number
// of files so far. The caller may change them before Put.
func (w *Writer) Fields(kind fdfs.Kind, ext string, content []byte) fdfs.Fields {
	w.count++
	f := fdfs.Fields{
		Group: "group1", High: byte(w.count >> 8), Low: byte(w.count), Kind: kind, Source: fdfs.Source{127, 0, 0, 1},
		Created: w.Created.Unix(), Size: int64(len(content)), CRC32: crc32.ChecksumIEEE(content),
		Random: w.count * 7919 % (1 << 23), Ext: ext, Pad: w.count,
	}
	if kind == fdfs.KindAppender {
		f.Size = 0
	}
	return f
}

// NextSlot puts a file into the next slot of trunk file 1 in its sub directory.
func (w *Writer) NextSlot(f *fdfs.Fields) {
	name := fmt.Sprintf("%s/%02X/%02X", w.Root(f.Group, f.PathIndex), f.High, f.Low)
	if w.slots == nil {
		w.slots = map[string]uint32{}
	}
	f.Trunk = fdfs.Trunk{ID: 1, Offset: w.slots[name], Alloc: (uint32(f.Size) + fdfs.SlotHeaderSize + 255) &^ 255}
	w.slots[name] += f.Trunk.Alloc
}

// Put writes a file, or the slot of a packed one, and returns its id.
func (w *Writer) Put(f fdfs.Fields, content []byte) (fdfs.FileID, error) {
	id, err := fdfs.Encode(f)
	if err == nil && f.Kind == fdfs.KindTrunk {
		return id, w.WriteSlot(id, fdfs.SlotFile, content)
	}
	if err == nil {
		err = w.Write(id, content)
	}
	return id, err
}

// PutSlave writes a slave of a file, such as its thumbnail with the prefix "_150x150".
func (w *Writer) PutSlave(master fdfs.FileID, prefix, ext string, content []byte) (fdfs.FileID, error) {
	id, err := fdfs.EncodeSlave(master, prefix, ext)
	if err == nil {
		err = w.Write(id, content)
	}
	return id, err
}

// Path returns the path of a file on disk; for a packed file, the path of the trunk file.
func (w *Writer) Path(id fdfs.FileID) string {
	return filepath.Join(w.Root(id.Group, id.PathIndex), "data", id.DiskName())
}

// Write writes a single file.
func (w *Writer) Write(id fdfs.FileID, content []byte) error {
	changed := w.Changed
	if changed.IsZero() {
		changed = w.Created
	}
	return Replace(w.Path(id), content, changed)
}

// Replace writes a file and its folders, completely or not at all. A file with this content is not
// written again.
func Replace(name string, content []byte, changed time.Time) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("cannot make folder: %w", err)
	}
	temp := name + ".new"
	err := os.WriteFile(temp, content, 0o644)
	if err == nil {
		err = os.Chtimes(temp, changed, changed)
	}
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("cannot write %q: %w", name, err)
	}
	return nil
}

// WriteSlot writes a slot of this type. Bytes behind its content stay; at the end of the trunk file
// they are zeros.
func (w *Writer) WriteSlot(id fdfs.FileID, typ byte, content []byte) error {
	header := id.SlotHeader()
	header.Type = typ
	slot, offset := append(header.AppendTo(nil), content...), int64(id.Trunk.Offset)
	if err := os.MkdirAll(filepath.Dir(w.Path(id)), 0o755); err != nil {
		return fmt.Errorf("cannot make folder: %w", err)
	}
	f, err := os.OpenFile(w.Path(id), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("cannot open trunk file: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing is buffered
	old := make([]byte, len(slot))
	if n, _ := f.ReadAt(old, offset); n < len(slot) || !bytes.Equal(old, slot) {
		_, err = f.WriteAt(slot, offset)
	}
	end := offset + int64(id.Trunk.Alloc)
	if info, statErr := f.Stat(); err == nil && statErr == nil && info.Size() < end {
		err = f.Truncate(end)
	}
	if err != nil {
		return fmt.Errorf("cannot write slot: %w", err)
	}
	return nil
}
