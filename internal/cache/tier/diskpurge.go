package tier

import (
	"errors"
	"io/fs"

	"golang.org/x/sync/errgroup"
)

// Purge removes the segments of the files that match from the index, and returns their number. It
// does not wait for the disk: work removes the files behind it. A purge of one file takes time for
// the segments of this file only; a purge of a folder walks the index in steps. Files in folders
// whose names were not read yet are removed when they are read.
//
// Until Sync has returned, the files may be found by the next process.
func (d *Disk) Purge(m Match) (n int) {
	d.mu.Lock()
	if !d.named.Load() {
		if len(d.purged) >= maxPurged {
			clear(d.purged)
			d.purged[MatchAll] = struct{}{}
		}
		d.purged[m] = struct{}{}
	}
	d.mu.Unlock()
	d.pending.Visit(&d.mu, m, func(key Key, j *job) {
		j.canceled, j.purged = true, true // not written, if the write has not begun
		d.pending.Remove(key)
		n++
	})
	d.mu.Lock()
	if d.active != nil && d.active.canceled && m.Matches(d.active.segment.File) {
		d.active.purged = true // also if it was canceled before: its file is there soon
	}
	d.mu.Unlock()
	d.index.all.Visit(&d.mu, m, func(key Key, _ *diskEntry) {
		d.startUnlink(key)
		n++
	})
	d.index.unlinking.Visit(&d.mu, m, func(key Key, r *removal) {
		r.purged = true
		d.startUnlink(key) // again if it has failed
	})
	for i := range d.folders {
		if !m.IsFile() || i == folderOf(string(m)) {
			d.folders[i].wanted.Store(true)
		}
	}
	return n
}

// maxPurged bounds Disk.purged. Beyond it all segments are purged whose names were not read yet.
const maxPurged = 1 << 14

// wasPurged reports whether a purge since the start has selected a file. mu is held.
func (d *Disk) wasPurged(file string) bool {
	for i := range len(file) {
		if file[i] != '/' {
			continue
		}
		if _, ok := d.purged[Match(file[:i+1])]; ok {
			return true
		}
	}
	_, all := d.purged[MatchAll]
	_, it := d.purged[MatchFile(file)]
	_, original := d.purged[MatchFile(fileOf(file))]
	return all || it || original
}

// startUnlink is index.startUnlink. It wakes work. mu is held.
func (d *Disk) startUnlink(key Key) *removal {
	r := d.index.startUnlink(key)
	d.wakeWork()
	return r
}

// wakeWork makes work look at index.queue.
func (d *Disk) wakeWork() {
	select {
	case d.removals <- struct{}{}:
	default: // a value is there
	}
}

// removeFiles removes up to n of the files in index.queue, and reports whether some are left.
func (d *Disk) removeFiles(n int) (more bool) {
	for ; n > 0 && d.life.Err() == nil; n-- {
		if !d.removeNext() {
			return false
		}
	}
	return d.life.Err() == nil
}

// removeNext removes the first file in index.queue, and reports whether there was one.
func (d *Disk) removeNext() bool {
	d.mu.Lock()
	key, r := d.index.dequeue()
	d.mu.Unlock()
	if r != nil {
		d.unlink(key, r)
	}
	return r != nil
}

// unlink removes the file of a segment in index.unlinking. After a failure the segment stays there:
// further purges try again, and so does Sync if the segment was purged.
func (d *Disk) unlink(key Key, r *removal) {
	err := d.io.supervise("remove", func() error { return d.root.Load().Remove(d.path(key)) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.failed(&d.writing, "cannot remove from the cache's disk", err)
		return
	}
	d.folders[folderOf(key.File)].removals.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.index.endUnlink(key, r)
}

// unlinkAll removes the files of evicted segments, until the tier ends.
func (d *Disk) unlinkAll(keys []Key) {
	for _, key := range keys {
		if d.life.Err() != nil {
			return
		}
		d.mu.Lock()
		r := d.index.unlinking.Get(key)
		if r != nil {
			r.queued = false
		}
		d.mu.Unlock()
		if r != nil {
			d.unlink(key, r)
		}
	}
}

// flush returns when work has removed all files in index.queue, or could not. Failed removals of
// purges are queued again before.
func (d *Disk) flush() error {
	d.index.unlinking.Visit(&d.mu, MatchAll, func(key Key, r *removal) {
		if r.purged {
			d.index.enqueue(key, r)
		}
	})
	off, flushed := d.io.offChannel(), make(chan struct{})
	select {
	case d.flushes <- flushed:
	case <-off:
		return errOff
	case <-d.life.Done():
		return nil
	}
	select {
	case <-flushed:
	case <-off:
		return errOff
	}
	return nil
}

// errKept is the error of Sync if purged files are left.
var errKept = errors.New("purged files are left on the disk")

// keptError returns errKept if purged files are left, or may be, since names were not read yet.
func (d *Disk) keptError() (err error) {
	d.mu.Lock()
	if len(d.purged) > 0 || d.active != nil && d.active.purged {
		err = errKept
	}
	d.mu.Unlock()
	d.index.unlinking.Visit(&d.mu, MatchAll, func(_ Key, r *removal) {
		if r.purged {
			err = errKept
		}
	})
	return err
}

// syncsAtOnce bounds the folders that are synced at a time: most of these syncs share a write of
// the journal.
const syncsAtOnce = 16

// Sync makes purges durable: it returns when their files are removed, also after a power failure.
// Removals that have failed are tried again, and the error is not nil until no purged file is on
// the disk. Sync syncs the folders that purges have touched and from which a file was removed since
// their last sync. Each sync waits for the disk, so one call should follow a batch of purges; calls
// at the same time share the work.
func (d *Disk) Sync() error {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if d.root.Load() == nil {
		return errNotOpen
	}
	err := d.readPurged()
	if err == nil {
		err = d.flush()
	}
	if err == nil {
		err = d.keptError()
	}
	if err == nil && d.life.Err() == nil { // else the process that has the folder now does the rest
		err = d.syncFolders()
	}
	if err != nil && !errors.Is(err, errOff) {
		d.failed(&d.writing, "cannot remove from the cache's disk", err)
	}
	return err
}

// readPurged reads the names in all folders if there were purges before they were read.
func (d *Disk) readPurged() error {
	d.mu.Lock()
	some := len(d.purged) > 0
	d.mu.Unlock()
	if !some || d.life.Err() != nil {
		return nil
	}
	for i := range d.folders {
		if d.folders[i].named.Load() {
			continue
		}
		if err := doOnly(d.io, "list", untilOff, func() error { return d.readNames(i) }); err != nil {
			return err
		}
	}
	d.allNamed()
	return nil
}

// syncFolders syncs the folders that purges have touched.
func (d *Disk) syncFolders() error {
	var group errgroup.Group
	group.SetLimit(syncsAtOnce)
	for i := range d.folders {
		f := &d.folders[i]
		if !f.wanted.Swap(false) {
			continue
		}
		removals := f.removals.Load() + 1
		if f.synced == removals {
			continue
		}
		group.Go(func() error {
			err := doOnly(d.io, "sync", untilOff, func() error { return d.root.Load().sync(folderName(i)) })
			if err != nil {
				f.wanted.Store(true)
				return err
			}
			f.synced = removals
			return nil
		})
	}
	return group.Wait()
}
