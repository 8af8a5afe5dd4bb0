package local

import (
	"errors"
	"hash/maphash"
	"path"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/fdfs"

	"golang.org/x/sys/unix"
)

// recoveryMarks are files in the data folder while FastDFS restores the files of a replaced disk.
var recoveryMarks = []string{".recovery.mark", ".recovery.flag", ".binlog.recovery"}

// Deleted reports whether a file that Open did not find was deleted: its folder exists, so the disk
// is mounted; FastDFS is not restoring the files of a lost disk; and there is no file of this name,
// or the trunk slot is free or another file's. openErr is the error of Open, which was called after
// since. The state of the folder may be a second old. That of the file is not, so it is looked for
// again, unless Open has found no file of its name when the folder was known to be sound.
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
	case openErr == ErrMissing && at.Before(since):
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

// exists reports whether the file name exists beneath d. The error is that of a disk.
func (d *dataDir) exists(name string) (bool, error) {
	if there, sure := d.statNoWait(name); sure {
		return there, nil
	}
	switch _, err := d.stat(name); err {
	case nil:
		return true, nil
	case unix.ENOENT:
		return false, nil
	default:
		return false, err
	}
}

// soundFor is the time for which the sound state of a folder is remembered.
const soundFor = time.Second

// soundFolders remembers the folders of a data folder that were sound lately. Each place holds the
// hash of a folder's name above soundBits, and below them the milliseconds since the data folder
// was opened, plus 1.
type soundFolders [512]atomic.Uint64

const (
	soundBits = 40 // hold the milliseconds of 34 years
	soundMask = 1<<soundBits - 1
)

// isSound reports whether a folder beneath d exists while FastDFS restores no files, and the time
// at which that was found.
func (d *dataDir) isSound(folder string) (sound bool, at time.Time) {
	hash := maphash.String(d.seed, folder)
	place := &d.sound[hash%uint64(len(d.sound))]
	tag, now := hash>>soundBits<<soundBits, d.soundTime()
	v := place.Load()
	if at := v & soundMask; v-at == tag && at != 0 && now-at < uint64(soundFor.Milliseconds()) {
		return true, d.opened.Add(time.Duration(at) * time.Millisecond) // at most a millisecond later
	}
	for _, mark := range recoveryMarks {
		if _, err := d.stat(mark); err != unix.ENOENT {
			return false, at
		}
	}
	if _, err := d.stat(folder); err != nil {
		return false, at
	}
	place.Store(tag | d.soundTime())
	return true, time.Now()
}

// soundTime is the time in soundFolders.
func (d *dataDir) soundTime() uint64 { return uint64(time.Since(d.opened).Milliseconds()) + 1 }
