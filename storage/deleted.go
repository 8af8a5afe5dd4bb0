package storage

import (
	"errors"
	"path"

	"fastdfs-gateway/internal/fdfs"

	"golang.org/x/sys/unix"
)

// recoveryMarks are in the data folder while FastDFS brings the files of a disk back that was
// replaced.
var recoveryMarks = []string{".recovery.mark", ".recovery.flag", ".binlog.recovery"}

// Deleted tells whether a file that Open did not find was deleted: its folder is there, so the disk
// is; FastDFS is not bringing the files of a lost disk back; and there is nothing under its name,
// or its trunk slot is free or another file's. It costs a handful of calls to the kernel.
func (l *Local) Deleted(id fdfs.FileID) bool {
	g, p, dir, err := l.locate(id)
	if err != nil {
		return false
	}
	defer dir.release()
	for _, mark := range recoveryMarks {
		if _, err := dir.stat(mark); err != unix.ENOENT {
			return false
		}
	}
	name := id.DiskName()
	if _, err := dir.stat(path.Dir(name)); err != nil {
		return false
	}
	if _, err := dir.stat(name); err == unix.ENOENT || id.Kind != fdfs.KindTrunk {
		return err == unix.ENOENT
	}
	file, _, err := g.open(place{id: id, path: p})
	if file != nil {
		_ = file.Close() // it was only read from: nothing can be lost
	}
	return errors.Is(err, errSlot)
}

// Deleted is Local.Deleted.
func (c *FileCache) Deleted(id fdfs.FileID) bool { return c.local.Deleted(id) }
