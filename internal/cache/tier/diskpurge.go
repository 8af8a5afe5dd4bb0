package tier

import (
	"errors"
	"io/fs"

	"golang.org/x/sync/errgroup"
)

// Purge: see the contract at the head of the package. The cost of a purge of one file depends on
// the segments of that file only; one of a folder walks the index, in steps. Until the files of a
// folder have entries, the first purge reads their names. Purge waits if the segment that is being
// written is one of these. What was removed may come back after a power failure until Sync has
// returned. A disk that cannot be read or written may keep some; that is logged, and none of it is
// found by this process.
func (d *Disk) Purge(m Match) int {
	first, last := 0, folders-1
	if m.IsFile() {
		first = folderOf(string(m))
		last = first
	}
	for i := first; i <= last; i++ {
		if err := d.readNames(i); err != nil {
			d.folders[i].named.Store(true) // none of it is found
			d.failed(&d.writing, "cannot remove from the cache's disk", err)
		}
	}
	n, running := d.purgePending(m)
	if running != nil { // it may have been canceled before, and not be removed yet
		select {
		case <-running.done:
		case <-d.life.Done():
		}
	}
	n += d.purgeFiles(m)
	for i := first; i <= last; i++ {
		d.folders[i].wanted.Store(true)
	}
	return n
}

// purgePending cancels the segments that wait to be written, and returns their number, and the one
// that is being written if it is meant.
func (d *Disk) purgePending(m Match) (n int, running *job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	cancel := func(key Key, j *job) {
		j.canceled = true // it is not written any more, if that has not begun
		d.pending.remove(key)
		n++
	}
	if m.IsFile() {
		d.pending.each(string(m), cancel)
	} else {
		for file := range d.pending { // there are maxJobs at most
			if m.Matches(file) {
				d.pending.each(file, cancel)
			}
		}
	}
	if d.active != nil && m.Matches(d.active.segment.File) {
		running = d.active
	}
	return n, running
}

// purgeFiles removes the segments that have been written, and returns their number.
func (d *Disk) purgeFiles(m Match) int {
	var keys []Key
	if m.IsFile() {
		d.mu.Lock()
		keys = d.index.startUnlinkFile(string(m), keys)
		d.mu.Unlock()
		return d.unlinkAll(keys)
	}
	Walk(&d.mu, d.index.all, func(file string, _ segments[diskEntry]) {
		if m.Matches(file) {
			d.index.all.each(file, func(key Key, _ *diskEntry) { d.index.startUnlink(key) })
		}
	})
	Walk(&d.mu, d.index.unlinking, func(file string, _ segments[Key]) {
		if m.Matches(file) {
			d.index.unlinking.each(file, func(key Key, _ *Key) { keys = append(keys, key) })
		}
	})
	return d.unlinkAll(keys)
}

// unlink removes the file of a segment that is to be unlinked, and tells whether there was one. One
// that cannot be removed stays listed: a purge tries again.
func (d *Disk) unlink(key Key) bool {
	if d.released.Load() {
		return false // by now it may be another process's
	}
	d.mu.Lock()
	listed := d.index.unlinking.get(key) != nil
	d.mu.Unlock()
	if !listed {
		return false // it is gone, or there is a newer one in its place
	}
	err := d.o.failure("remove")
	if err == nil {
		err = d.root.Remove(d.path(key))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.failed(&d.writing, "cannot remove from the cache's disk", err)
		return false
	}
	d.folders[folderOf(key.File)].removals.Add(1)
	d.mu.Lock()
	d.index.unlinking.remove(key)
	d.mu.Unlock()
	return err == nil
}

// unlinkAll does that for several, and returns the number of files.
func (d *Disk) unlinkAll(keys []Key) (n int) {
	for _, key := range keys {
		if d.unlink(key) {
			n++
		}
	}
	return n
}

// syncsAtOnce is how many folders are synced at a time: most of them with one write of the journal.
const syncsAtOnce = 16

// Sync returns when nothing comes back after a power failure of what Purge has removed. It syncs
// the folders of purges from which a file was removed since they were synced, an evicted one too.
// Calls at the same time share that: it is for a batch of purges, since each folder waits for the
// disk.
func (d *Disk) Sync() error {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if d.released.Load() {
		return nil // the files are purged by the process that has the folder now
	}
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
	err := group.Wait()
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
