package local

import (
	"errors"
	"strconv"
	"sync/atomic"
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
	defer dir.dropRef()
	sound, at := dir.isSound(id.Folder())
	switch {
	case !sound:
		return false
	case (openErr == ErrMissing || openErr == errSlot) && at.Before(since):
		return true
	}
	there, err := dir.exists(id.DiskName())
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
	fd, sure, err := d.lookUpNoWait(name)
	switch {
	case !sure:
		_, err = d.awaitStat(name)
	case err == nil:
		closeRaw(fd)
	}
	if err == unix.ENOENT {
		return false, nil
	}
	return err == nil, err
}

// soundFor is the time for which a folder that was found sound counts as sound.
const soundFor = time.Second

// soundness has the times at which isSound found a data folder sound, as the time since its epoch.
type soundness struct {
	marks   atomic.Int64                     // no file of recoveryMarks existed
	folders [1 << 8]atomic.Pointer[lowTimes] // a folder existed; by the two numbers in its name
}

type lowTimes [1 << 8]atomic.Int64

// of returns the time of a folder HH/LL.
func (s *soundness) of(folder string) *atomic.Int64 {
	n, _ := strconv.ParseUint(folder[:2]+folder[3:5], 16, 16) // never fails: an id has hexadecimal digits there
	times := s.folders[n>>8].Load()
	if times == nil {
		s.folders[n>>8].CompareAndSwap(nil, new(lowTimes))
		times = s.folders[n>>8].Load()
	}
	return &times[n&0xff]
}

// isSound reports whether a folder beneath d is sound: it exists, and FastDFS is restoring no
// files. at is the time at which isSound found that no files are being restored.
func (d *dataDir) isSound(folder string) (sound bool, at time.Time) {
	seen, now := d.sound.of(folder), time.Since(d.epoch)
	marks, there := d.sound.marks.Load(), seen.Load()
	if now-time.Duration(marks) >= soundFor {
		for _, mark := range recoveryMarks {
			if found, err := d.exists(mark); err != nil || found {
				return false, at
			}
		}
		marks = int64(time.Since(d.epoch))
		d.sound.marks.Store(marks)
	}
	if now-time.Duration(there) >= soundFor {
		if found, err := d.exists(folder); err != nil || !found {
			return false, at
		}
		seen.Store(int64(now))
	}
	return true, d.epoch.Add(time.Duration(marks))
}
