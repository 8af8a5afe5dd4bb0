package tier

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// maxJobs bounds the number of segments that wait to be written. DiskOptions.Queue bounds their
// bytes.
const maxJobs = 4096

// startShare is the divisor of the budget for segments that are stored while the size of some files
// is unknown: such files cannot be evicted.
const startShare = 4

// fullShare is the divisor of the bytes on disk for those that are evicted when the file system is
// full.
const fullShare = 32

// job is a segment that waits to be written.
type job struct {
	segment  *Segment
	path     string
	done     chan struct{}
	canceled bool // not to be stored; guarded by Disk.mu, as is purged
	purged   bool // canceled by a purge
}

// onDisk returns the bytes that a file of this length takes on disk.
func onDisk(length int64) int64 { return (length + 4095) &^ 4095 }

// roomOnDisk returns the bytes that a segment takes in the budget of a Disk.
func (s *Segment) roomOnDisk() int64 {
	return onDisk(fixedHeader + int64(4*len(s.Chunks)+len(s.File)) + s.Length())
}

// isListing reports whether the size of some files is unknown, which are about to be listed. mu is
// held.
func (d *Disk) isListing() bool { return !d.listed && d.index.unsized > 0 }

// Put queues a segment, which is written in the background; if the write fails the segment is not
// stored. Put returns false if Get does not find the segment. While reads are disabled, and before
// DiskOptions.Ready, that is so although the segment is written.
func (d *Disk) Put(s *Segment) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue(s) && d.isReady() && !d.readsDisabled()
}

// queue queues a segment, and reports whether the segment waits to be written. mu is held.
func (d *Disk) queue(s *Segment) bool {
	path, size := d.path(s.Key), s.Length()
	before := d.pending.Get(s.Key)
	switch {
	case path == "" || size == 0 || s.roomOnDisk() > d.o.Max:
		return false
	case before != nil && before.segment.Version == s.Version:
		return true
	case d.root.Load() == nil || d.life.Err() != nil, d.io.isOff.Load() || isDisabled(&d.writing),
		d.queued+size > d.o.Queue,
		d.isListing() && d.early+s.roomOnDisk() > d.o.Max/startShare:
		d.stats.Skipped++
		return false
	}
	j := &job{segment: s, path: path, done: make(chan struct{})}
	select {
	case d.jobs <- j:
	default:
		d.stats.Skipped++
		return false
	}
	if before != nil {
		before.canceled = true
	}
	d.pending.Set(s.Key, j)
	d.queued += size
	if d.isListing() {
		d.early += s.roomOnDisk()
	}
	return true
}

// removeBatch bounds the files that are removed before the next segment is written.
const removeBatch = 64

// work is the goroutine that writes the queued segments, one after the other, and removes files.
func (d *Disk) work() {
	always := make(chan struct{})
	close(always)
	for d.life.Err() == nil {
		var again <-chan struct{}
		if d.removeFiles(removeBatch) {
			again = always
		}
		select {
		case <-d.life.Done():
		case j := <-d.jobs:
			d.store(j)
		case flushed := <-d.flushes:
			for d.removeFiles(removeBatch) {
			}
			close(flushed)
		case <-d.removals:
		case <-again:
		}
	}
	for d.removeNext() { // before the folder is left to another process, which would find them
	}
}

// store writes a segment and lists it.
func (d *Disk) store(j *job) {
	defer close(j.done)
	err := d.writeFile(j)
	if err != nil && !errors.Is(err, errCanceled) { // before the job leaves the queue: no other is written meanwhile
		d.failed(&d.writing, "cannot write to the cache's disk", err)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			d.makeRoom()
		}
	}
	d.stored(j, err)
}

// stored removes a job from the queue and lists its segment. The file of a job that was canceled is
// removed.
func (d *Disk) stored(j *job, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := j.segment.Key
	d.writes = 0
	d.queued -= j.segment.Length()
	if d.pending.Get(key) == j {
		d.pending.Remove(key)
	}
	switch {
	case err == nil && j.canceled:
		r := d.startUnlink(key)
		r.purged = r.purged || j.purged
	case err == nil:
		d.index.addEntry(&diskEntry{key: key, bytes: j.segment.roomOnDisk()})
	case !j.canceled:
		d.stats.Skipped++
	}
	d.active = nil
}

// makeRoom evicts the oldest entries on a file system that is full although the budget is not.
// Otherwise the cache would keep these entries, and store nothing new, until other files are
// removed. The number of evicted bytes is bounded, since another program may be filling the file
// system.
func (d *Disk) makeRoom() {
	d.mu.Lock()
	victims := d.evict(d.index.used - d.index.used/fullShare)
	d.mu.Unlock()
	d.unlinkAll(victims)
}

// evict removes the oldest entries from the index, until the remaining ones and the segment that is
// being written take at most the given bytes. mu is held. work removes the files; it returns their
// segments for a caller that needs their room at once.
func (d *Disk) evict(most int64) []Key {
	var victims []Key
	for d.index.used+d.writes > most {
		e := d.index.oldest()
		if e == nil {
			break
		}
		d.startUnlink(e.key)
		victims = append(victims, e.key)
		d.stats.Evicted++
	}
	return victims
}

// SetMax changes DiskOptions.Max. The files beyond the new budget are removed in the background.
func (d *Disk) SetMax(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.o.Max = bytes
	d.evict(d.o.Max)
}

// errCanceled: a segment was not written, since it was purged or replaced before, or writes are
// disabled.
var errCanceled = errors.New("canceled")

// writeFile writes the file of a segment.
func (d *Disk) writeFile(j *job) error {
	d.mu.Lock()
	if j.canceled || isDisabled(&d.writing) {
		d.mu.Unlock()
		return errCanceled
	}
	d.active, d.writes = j, j.segment.roomOnDisk()
	victims := d.evict(d.o.Max) // before the write, so that the budget is never exceeded
	d.mu.Unlock()
	d.unlinkAll(victims)
	err := d.fillFile(temporary, j.segment)
	if err == nil {
		err = d.io.supervise("rename", func() error { return d.root.Load().Rename(temporary, j.path) })
	}
	if err != nil {
		// The first error is returned.
		_ = d.io.supervise("remove", func() error { return d.root.Load().Remove(temporary) })
		return fmt.Errorf("cannot write %q: %w", j.path, err)
	}
	return nil
}

// fillFile writes a file, chunk by chunk: a slow disk is no hanging one.
func (d *Disk) fillFile(path string, s *Segment) (err error) {
	// A file of this name is left when its removal failed, as on a file system that became
	// read-only.
	var f *os.File
	err = d.io.supervise("create", func() (err error) {
		f, err = d.root.Load().OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.io.supervise("close", f.Close)) }()
	for _, p := range append([][]byte{appendHeader(nil, s)}, s.Chunks...) {
		err = d.io.supervise("write", func() error {
			_, err := f.Write(p)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
