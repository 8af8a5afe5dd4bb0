package tier

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// found is a file that was there at start.
type found struct {
	key   Key
	bytes int64
	used  time.Time
}

// listBatch is how many files are listed under the lock at a time.
const listBatch = 1024

// list is the goroutine that lists what is on the disk at start. It looks at names, sizes and times
// only.
func (d *Disk) list() {
	var all []found
	for i := range folders {
		if d.life.Err() != nil {
			return
		}
		err := d.eachFile(i, func(key Key, path string) error {
			f, err := d.examine(key, path)
			if err == nil {
				all = append(all, f)
			}
			return err
		})
		if err != nil {
			d.failed(&d.reading, "cannot list what is on the cache's disk", err)
		}
	}
	sortByUse(all, time.Now())
	for batch := range slices.Chunk(all, listBatch) {
		d.mu.Lock()
		for _, f := range batch {
			d.index.addOld(f.key, &entry{bytes: f.bytes})
		}
		d.mu.Unlock()
	}
	d.mu.Lock()
	d.listed = true
	victims := d.evict()
	d.mu.Unlock()
	d.unlinkAll(victims)
}

// maxAhead is how far ahead of the clock the time of a file may be.
const maxAhead = time.Hour

// sortByUse puts the file first that was not used for the longest time. Files with times from the
// future come before all others: they were used while the clock of the host was ahead, and would
// otherwise stay until it has come that far.
func sortByUse(all []found, now time.Time) {
	rank := func(f found) int {
		if f.used.After(now.Add(maxAhead)) {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.used.Compare(b.used), cmp.Compare(a.key.Index, b.key.Index))
	})
}

// examine looks at size and time of a file. The access time, where the file system keeps it, is
// later than the modification.
func (d *Disk) examine(key Key, path string) (found, error) {
	info, err := d.root.Lstat(path)
	if err != nil {
		return found{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		panic("BUG: Lstat without a Stat_t")
	}
	used := max(stat.Atim.Nano(), stat.Mtim.Nano())
	return found{key: key, bytes: onDisk(stat.Size), used: time.Unix(0, used)}, nil
}

// eachFile calls do for the segments in a folder, by their names. What has no such name is left
// alone. A file that is gone when do looks at it is passed over.
func (d *Disk) eachFile(folder int, do func(key Key, path string) error) error {
	dir := folderName(folder)
	var names []string // all of them, as do may remove some
	if err := d.root.eachName(dir, func(name string) error { names = append(names, name); return nil }); err != nil {
		return err
	}
	for _, name := range names {
		key, ok := decodeName(name)
		if !ok || folderOf(key.File) != folder {
			continue
		}
		if err := do(key, filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Drop implements Tier. It goes by the names in the folders, not by the index, which need not be
// complete, and waits if the segment that is being written is one of these. What was removed does
// not come back after a power failure. A disk that cannot be read or written may keep some; that is
// logged, and none of it is found by this process.
func (d *Disk) Drop(m Match) int {
	d.mu.Lock()
	d.drops++
	n := 0
	for key, j := range d.pending {
		if m.Matches(key.File) {
			j.dropped = true // it is not written any more, if that has not begun
			delete(d.pending, key)
			n++
		}
	}
	running := d.active
	for _, key := range d.index.keys(m) {
		d.index.remove(key)
	}
	d.mu.Unlock()
	if running != nil && m.Matches(running.segment.File) { // it may have been dropped before, and not be removed yet
		select {
		case <-running.done:
		case <-d.life.Done():
		}
	}
	if d.released.Load() {
		return n // the files are dropped by the process that has the folder now
	}
	first, last := 0, folders-1
	if m.isFile() {
		first = folderOf(string(m))
		last = first
	}
	var syncing errgroup.Group
	syncing.SetLimit(syncsAtOnce)
	for i := first; i <= last; i++ {
		n += d.dropIn(i, m)
		// Also where nothing was left to remove: it may have been evicted a moment ago.
		syncing.Go(func() error { return d.syncFolder(i) })
	}
	if err := syncing.Wait(); err != nil {
		d.failed(&d.writing, "cannot remove from the cache's disk", err)
	}
	return n
}

// syncsAtOnce is how many folders are synced at a time: most of them with one write of the journal.
const syncsAtOnce = 16

// removals tells whether names that were removed from a folder may come back after a power failure.
type removals struct {
	mu     sync.Mutex // guards what follows; held while a file is removed, and while the folder is synced
	synced bool       // none may; false at first: an earlier process may have removed some
}

// remove removes a file from its folder.
func (d *Disk) remove(path string) error {
	folder, _, _ := strings.Cut(path, "/")
	i, err := strconv.ParseUint(folder, 16, 8)
	if err != nil {
		return err
	}
	r := &d.removals[i]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced = false
	return d.root.Remove(path)
}

// syncFolder returns when no name that was removed from a folder comes back. Of the many purges
// that a gateway may have missed, few remove anything.
func (d *Disk) syncFolder(i int) error {
	r := &d.removals[i]
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.synced {
		return nil
	}
	err := d.o.failure("sync")
	if err == nil {
		err = d.root.sync(folderName(i))
	}
	r.synced = err == nil
	return err
}

// dropIn removes files from one folder.
func (d *Disk) dropIn(folder int, m Match) (n int) {
	err := d.eachFile(folder, func(key Key, path string) error {
		if !m.Matches(key.File) {
			return nil
		}
		d.forget(key, nil)
		err := d.remove(path)
		if err == nil {
			n++
		}
		return err
	})
	if err != nil {
		d.failed(&d.writing, "cannot remove from the cache's disk", err)
	}
	return n
}
