package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// change is one change of one file below a store path's data folder, as it is made here and then by
// the other storages.
type change struct {
	Kind      string // one of the kinds below
	PathIndex int
	Name      string // HH/LL/...
	To        string // new name, or what a link points to, below the same data folder
	Offset    int64
	Data      []byte
	Time      time.Time
}

// Kinds of changes.
const (
	putFile  = "put"      // the whole file
	patch    = "patch"    // bytes at an offset
	truncate = "truncate" // Offset is the new size
	rename   = "rename"
	remove   = "remove"
	link     = "link"
)

// store is the store paths of a storage.
type store struct {
	paths   []string
	subDirs int
}

func openStore(c conf) (*store, error) {
	s := &store{subDirs: c.number("subdir_count_per_path", 256)}
	for i := range c.number("store_path_count", 1) {
		s.paths = append(s.paths, c.get(fmt.Sprintf("store_path%d", i)))
	}
	for _, path := range s.paths {
		for n := range s.subDirs * s.subDirs {
			dir := filepath.Join(path, "data", fmt.Sprintf("%02X/%02X", n/s.subDirs, n%s.subDirs))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// path is where a name lies; it refuses what leads out of the store.
func (s *store) path(index int, name string) (string, error) {
	if index < 0 || index >= len(s.paths) || strings.Contains(name, "..") {
		return "", fdfs.StatusError(22)
	}
	return filepath.Join(s.paths[index], "data", name), nil
}

// diskPath is where the bytes of a file are.
func (s *store) diskPath(id fdfs.FileID) (string, error) { return s.path(id.PathIndex, id.DiskName()) }

// apply makes a change. What is not there to be removed has been removed.
func (s *store) apply(c change) error {
	path, err := s.path(c.PathIndex, c.Name)
	if err != nil {
		return err
	}
	to, err := s.path(c.PathIndex, c.To)
	if err != nil {
		return err
	}
	switch c.Kind {
	case putFile:
		temporary := path + ".new"
		if err := os.WriteFile(temporary, c.Data, 0o644); err != nil {
			return err
		}
		if err := os.Chtimes(temporary, c.Time, c.Time); err != nil {
			return err
		}
		return os.Rename(temporary, path)
	case patch:
		return writeAt(path, c)
	case truncate:
		if err := os.Truncate(path, c.Offset); err != nil {
			return err
		}
		return os.Chtimes(path, c.Time, c.Time)
	case rename:
		return os.Rename(path, to)
	case link:
		return os.Symlink(to, path)
	case remove:
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
		return nil
	}
	return fmt.Errorf("change of kind %q", c.Kind)
}

func writeAt(path string, c change) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(c.Data, c.Offset)
	if err == nil {
		err = os.Chtimes(path, c.Time, c.Time)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// read gives bytes of a file, and what there is to know of it.
func (s *store) read(id fdfs.FileID, offset, length int64) ([]byte, error) {
	f, size, start, err := s.open(id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if offset < 0 || length < 0 || offset >= size {
		return nil, fdfs.StatusError(22)
	}
	if length == 0 || length > size-offset {
		length = size - offset
	}
	b := make([]byte, length)
	_, err = f.ReadAt(b, start+offset)
	return b, err
}

// open finds a file: how long it is, and where in the file on disk it begins. Of a packed one the
// slot's header must be right.
func (s *store) open(id fdfs.FileID) (f *os.File, size, start int64, err error) {
	path, err := s.diskPath(id)
	if err != nil {
		return nil, 0, 0, err
	}
	if f, err = os.Open(path); err != nil {
		return nil, 0, 0, fdfs.StatusError(2)
	}
	if id.Kind == fdfs.KindTrunk {
		head := make([]byte, fdfs.SlotHeaderSize)
		_, err = f.ReadAt(head, int64(id.Trunk.Offset))
		if err == nil {
			_, err = fdfs.MatchSlot(id, head)
		}
		if err != nil {
			f.Close()
			return nil, 0, 0, fdfs.StatusError(2)
		}
		return f, id.Size, int64(id.Trunk.Offset) + fdfs.SlotHeaderSize, nil
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, 0, err
	}
	return f, info.Size(), 0, nil
}
