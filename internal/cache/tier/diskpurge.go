package tier

import (
	"errors"
	"io/fs"

	"golang.org/x/sync/errgroup"
)

// Purge removes the segments of the files that match and returns their number. A purge of one file
// takes time for the segments of this file only; a purge of a folder walks the index in steps. The
// names in a folder of the disk are read before, unless that was done already. Purge waits for the
// segment that is being written if it matches. Removed files may come back after a power failure
// until Sync has returned. Files that a failing disk does not remove are logged; this process does
// not find them, and Sync tries again.
func (d *Disk) Purge(m Match) int {
	first, last := 0, folders-1
	if m.IsFile() {
		first = folderOf(string(m))
		last = first
	}
	for i := first; i <= last; i++ {
		if err := d.readNames(i); err != nil {
			d.folders[i].named.Store(true) // without entries no segment in it is found
			d.folders[i].unread.Store(true)
			d.failed(&d.writing, "cannot remove from the cache's disk", err)
		}
	}
	n := d.purgePending(m)
	if running := d.running(m); running != nil {
		<-running.done
	}
	n += d.purgeFiles(m)
	for i := first; i <= last; i++ {
		d.folders[i].wanted.Store(true)
	}
	return n
}

// purgePending cancels the segments that wait to be written, and returns their number.
func (d *Disk) purgePending(m Match) (n int) {
	d.pending.visit(&d.mu, m, func(key Key, j *job) {
		j.canceled = true // not written, if the write has not begun
		d.pending.remove(key)
		n++
	})
	return n
}

// running returns the segment that is being written if it matches, also if it was canceled before:
// its file may still have to be removed.
func (d *Disk) running(m Match) *job {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.active != nil && m.Matches(d.active.segment.File) {
		return d.active
	}
	return nil
}

// purgeFiles removes the files of segments, and returns their number.
func (d *Disk) purgeFiles(m Match) (n int) {
	var keys []Key
	d.index.all.visit(&d.mu, m, func(key Key, _ *diskEntry) { d.index.startUnlink(key) })
	d.index.unlinking.visit(&d.mu, m, func(key Key, _ *removal) { keys = append(keys, key) })
	for _, key := range keys {
		if removed, _ := d.unlink(key, true); removed { // Sync returns the error if the removal fails again
			n++
		}
	}
	return n
}

// unlink removes the file of a segment in index.unlinking, and reports whether the file existed.
// After a failure the segment stays there: further purges try again, and so does Sync if the
// segment was purged.
func (d *Disk) unlink(key Key, purged bool) (removed bool, err error) {
	if d.released.Load() {
		return false, nil // another process may have written it
	}
	d.mu.Lock()
	r := d.index.unlinking.get(key)
	d.mu.Unlock()
	if r == nil {
		return false, nil // the file was removed, or replaced by a newer one
	}
	err = d.o.failure("remove")
	if err == nil {
		err = d.root.Remove(d.path(key))
	}
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		d.failed(&d.writing, "cannot remove from the cache's disk", err)
		d.mu.Lock()
		defer d.mu.Unlock()
		r.kept = r.kept || purged
		return false, err
	}
	d.folders[folderOf(key.File)].removals.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.index.endUnlink(key, r)
	return !missing, nil
}

// unlinkAll calls unlink for evicted segments, until the tier ends: their files may stay, since
// their content is right.
func (d *Disk) unlinkAll(keys []Key) {
	for _, key := range keys {
		if d.life.Err() != nil {
			return
		}
		_, _ = d.unlink(key, false) // the failure is logged
	}
}

// purgeAgain removes the files that purges could not remove. In a folder whose names a purge could
// not read, these are all files without an entry: none of them was found since.
func (d *Disk) purgeAgain() (err error) {
	for i := range d.folders {
		f := &d.folders[i]
		if !f.unread.Swap(false) {
			continue
		}
		keys, err := d.namesIn(i)
		if err != nil {
			f.unread.Store(true)
			return err
		}
		d.mu.Lock()
		for _, key := range keys {
			if d.index.all.get(key) == nil && !d.isActive(key) {
				d.index.startUnlink(key).kept = true
			}
		}
		d.mu.Unlock()
	}
	for _, key := range d.kept() {
		if _, failure := d.unlink(key, true); failure != nil {
			err = failure
		}
		d.folders[folderOf(key.File)].wanted.Store(true)
	}
	return err
}

// kept returns the purged segments whose files could not be removed.
func (d *Disk) kept() (keys []Key) {
	d.index.unlinking.visit(&d.mu, MatchAll, func(key Key, r *removal) {
		if r.kept {
			keys = append(keys, key)
		}
	})
	return keys
}

// keptError returns the error of Sync if purged files are left that this process cannot remove any
// more.
func (d *Disk) keptError() error {
	kept := len(d.kept()) > 0
	for i := range d.folders {
		kept = kept || d.folders[i].unread.Load()
	}
	if kept {
		return errors.New("purged files were left to another process")
	}
	return nil
}

// syncsAtOnce bounds the folders that are synced at a time: most of these syncs share a write of
// the journal.
const syncsAtOnce = 16

// Sync makes the removals of Purge durable. Before that it repeats the removals that have failed,
// and it returns an error until no purged file is on the disk. It syncs the folders that purges
// have touched and from which a file was removed since their last sync. Each sync waits for the
// disk, so one call should follow a batch of purges; calls at the same time share the work.
func (d *Disk) Sync() error {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if d.released.Load() { // the process that has the folder now purges by itself
		return d.keptError()
	}
	kept := d.purgeAgain()
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
			err := d.syncFolder(i)
			if err != nil {
				f.wanted.Store(true)
				return err
			}
			f.synced = removals
			return nil
		})
	}
	err := errors.Join(kept, group.Wait())
	if err != nil {
		d.failed(&d.writing, "cannot remove from the cache's disk", err)
	}
	return err
}

func (d *Disk) syncFolder(i int) error {
	if err := d.o.failure("sync"); err != nil {
		return err
	}
	return d.root.sync(folderName(i))
}
