package local

import (
	"errors"
	"path"

	"fastdfs-gateway/internal/fdfs"

	"golang.org/x/sys/unix"
)

// recoveryMarks are files in the data folder while FastDFS restores the files of a replaced disk.
var recoveryMarks = []string{".recovery.mark", ".recovery.flag", ".binlog.recovery"}

// Deleted reports whether a file that Open did not find was deleted: its folder exists, so the disk
// is mounted; FastDFS is not restoring the files of a lost disk; and there is no file of this name,
// or the trunk slot is free or another file's. It costs a few system calls.
func (l *Store) Deleted(id fdfs.FileID) bool {
	p, err := l.find(id)
	if err != nil {
		return false
	}
	dir, err := p.acquire()
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
	file, _, err := l.openOne(p, id)
	if file != nil {
		_ = file.Close() // read only: nothing is lost
	}
	return errors.Is(err, errSlot)
}

// Deleted calls Store.Deleted.
func (c *FileCache) Deleted(id fdfs.FileID) bool { return c.local.Deleted(id) }
