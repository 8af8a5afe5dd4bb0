package local

import (
	"errors"
	"path"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"

	"golang.org/x/sys/unix"
)

// recoveryMarks are files in the data folder while FastDFS restores the files of a replaced disk.
var recoveryMarks = []string{".recovery.mark", ".recovery.flag", ".binlog.recovery"}

// Deleted reports whether a file that Open did not find was deleted: its folder exists, so the disk
// is mounted; FastDFS is not restoring the files of a lost disk; and no file has this name, or the
// trunk slot is free or another file's. openErr is the error of a call of Open that began after
// since. The state of the folder may be a second old. The state of the file must be newer than that
// of the folder. So Deleted looks for the file again, unless the folder was found sound before
// since, and openErr is ErrMissing or that of a slot which is free or another file's.
func (l *Store) Deleted(id fdfs.FileID, openErr error, since time.Time) bool {
	p, err := l.find(id)
	if err != nil {
		return false
	}
	dir, err := p.acquire()
	if err != nil {
		return false
	}
	defer dir.release()
	name := id.DiskName()
	sound, at := dir.isSound(path.Dir(name))
	switch {
	case !sound:
		return false
	case (openErr == ErrMissing || openErr == errSlot) && at.Before(since):
		return true
	}
	there, err := dir.exists(name)
	if err != nil || !there || id.Kind != fdfs.KindTrunk {
		return err == nil && !there
	}
	file, _, err := l.openOne(p, id)
	if file != nil {
		_ = file.Close() // read only: nothing is lost
	}
	return errors.Is(err, errSlot)
}

// exists reports whether the file name exists beneath d. The error is any other one than ENOENT.
func (d *dataDir) exists(name string) (bool, error) {
	switch _, err := d.stat(name); err {
	case nil:
		return true, nil
	case unix.ENOENT:
		return false, nil
	default:
		return false, err
	}
}

const (
	soundFor = time.Second // for which a folder that was found sound counts as sound
	maxSound = 512         // of dataDir.sound
)

// isSound reports whether a folder beneath d is sound: it exists, and FastDFS is restoring no
// files. at is the time at which isSound found that.
func (d *dataDir) isSound(folder string) (sound bool, at time.Time) {
	if at, ok := d.sound.Get(folder); ok && time.Since(at) < soundFor {
		return true, at
	}
	for _, mark := range recoveryMarks {
		if _, err := d.stat(mark); err != unix.ENOENT {
			return false, at
		}
	}
	if _, err := d.stat(folder); err != nil {
		return false, at
	}
	at = time.Now()
	d.sound.Add(strings.Clone(folder), at)
	return true, at
}
