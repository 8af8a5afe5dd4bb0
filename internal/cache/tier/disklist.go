package tier

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// listedFile is a file of a segment that was on the disk at start.
type listedFile struct {
	entry *diskEntry
	bytes int64
	used  time.Time
}

// listBatch is the number of files that are listed while the lock is held.
const listBatch = 1024

// list is the goroutine that lists the segments on the disk at start. It reads names, sizes and
// times only. After DiskOptions.Retry it repeats the folders that have failed.
func (d *Disk) list() {
	var todo []int
	for i := range folders {
		todo = append(todo, i)
	}
	for repeated := false; ; repeated = true {
		failed, err := d.listFolders(todo)
		if d.life.Err() != nil {
			return
		}
		if err != nil && !repeated { // once: a file that can never be examined must not disable reads for ever
			d.failed(&d.reading, "cannot list what is on the cache's disk", err)
		}
		d.mu.Lock()
		d.listed = err == nil || repeated
		d.evict(d.o.Max)
		d.mu.Unlock()
		if err == nil {
			return
		}
		todo = failed
		select {
		case <-time.After(d.o.Retry):
		case <-d.life.Done():
			return
		}
	}
}

// listFolders lists the segments in folders. It returns the folders with segments whose size is
// unknown after an error of the disk.
func (d *Disk) listFolders(todo []int) (failed []int, err error) {
	var all []listedFile
	for _, i := range todo {
		found, failure := d.examineFolder(i)
		if d.life.Err() != nil {
			return nil, nil
		}
		if all = append(all, found...); failure != nil {
			failed, err = append(failed, i), failure
		}
	}
	d.allNamed()
	sortByUse(all, time.Now())
	for batch := range slices.Chunk(all, listBatch) {
		d.mu.Lock()
		for _, f := range batch {
			if d.index.get(f.entry.key, false) == f.entry {
				d.index.size(f.entry, f.bytes, &d.index.old)
			}
		}
		d.mu.Unlock()
	}
	return failed, err
}

// allNamed sets named if every folder is named. From then on the index has all segments on the disk
// that were not purged.
func (d *Disk) allNamed() {
	for i := range d.folders {
		if !d.folders[i].named.Load() {
			return
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.named.Store(true)
	d.purged = nil
}

// folder is one of the folders of a Disk.
type folder struct {
	mu    sync.Mutex   // guards the fields below; held while the names are read
	named atomic.Bool  // every file in the folder has an entry
	added []*diskEntry // entries for the next call of take

	// Number of removals of files from the folder, plus one, since an earlier process may have
	// removed some. Removed names come back after a power failure, unless the folder is synced.
	removals atomic.Uint64
	synced   uint64      // value of removals before the last sync; guarded by Disk.syncing
	wanted   atomic.Bool // a purge has selected the folder since the last sync
}

// takeEntries returns the entries that were added for files found at start, and empties their list.
func (f *folder) takeEntries() []*diskEntry {
	f.mu.Lock()
	defer f.mu.Unlock()
	added := f.added
	f.added = nil
	return added
}

// keepEntry adds an entry for the next call of takeEntries.
func (f *folder) keepEntry(e *diskEntry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.added = append(f.added, e)
}

// readNames adds an entry for each file in a folder; a file that was purged before is removed. It
// reads the names once, in the first call, so that all look-ups can use the index. It may hang.
func (d *Disk) readNames(i int) error {
	f := &d.folders[i]
	if f.named.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.named.Load() {
		return nil
	}
	keys, err := d.namesIn(i)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(keys, listBatch) {
		d.mu.Lock()
		for _, key := range batch {
			e := d.index.addName(key)
			switch {
			case e == nil:
			case d.wasPurged(key.File):
				d.startUnlink(key).purged = true
			default:
				f.added = append(f.added, e)
			}
		}
		d.mu.Unlock()
	}
	f.named.Store(true)
	return nil
}

// namesIn returns the segments whose files are in a folder.
func (d *Disk) namesIn(i int) (keys []Key, err error) {
	err = d.root.Load().eachName(folderName(i), func(name string) error {
		if key, ok := decodeName(name); ok && folderOf(key.File) == i {
			keys = append(keys, key)
		}
		return nil
	})
	return keys, err
}

// isNamed calls readNames for the folder of a file. It returns false if the disk has failed.
func (d *Disk) isNamed(file string) bool {
	if d.named.Load() {
		return true
	}
	i := folderOf(file)
	d.mu.Lock()
	off := d.readsDisabled()
	d.mu.Unlock()
	if off || d.folders[i].named.Load() {
		return d.folders[i].named.Load()
	}
	err := doOnly(d.io, "list", readTime, func() error { return d.readNames(i) })
	if err != nil && !errors.Is(err, errOff) {
		d.failed(&d.reading, "cannot list what is on the cache's disk", err)
	}
	return err == nil
}

// maxAhead is the longest time by which the time of a file may be ahead of the clock.
const maxAhead = time.Hour

// sortByUse sorts files by use, the least recently used one first. Files with times in the future
// come before all others: they were used while the clock of the host was ahead, and would otherwise
// stay until the clock reaches these times.
func sortByUse(all []listedFile, now time.Time) {
	rank := func(f listedFile) int {
		if f.used.After(now.Add(maxAhead)) {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b listedFile) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.used.Compare(b.used),
			cmp.Compare(a.entry.key.Index, b.entry.key.Index))
	})
}

// examineFolder reads the sizes and times of the files in a folder that were there at start. An
// error for one of them does not hide the sizes of the others, so that those can be evicted.
func (d *Disk) examineFolder(i int) (found []listedFile, err error) {
	err = d.io.supervise("list", func() error { return d.readNames(i) })
	for _, e := range d.folders[i].takeEntries() {
		if d.life.Err() != nil {
			break // Release waits, and another process for the folder
		}
		switch f, failure := d.examine(e); {
		case errors.Is(failure, fs.ErrNotExist):
			d.removeMissing(e.key, e)
		case failure != nil:
			err = failure
			d.folders[i].keepEntry(e)
		default:
			found = append(found, f)
		}
	}
	return found, err
}

// examine reads size and time of a file. The time is that of the last access or modification,
// whichever is later: not all file systems keep access times.
func (d *Disk) examine(e *diskEntry) (listedFile, error) {
	var info fs.FileInfo
	err := d.io.supervise("examine", func() (err error) {
		info, err = d.root.Load().Lstat(d.path(e.key))
		return err
	})
	if err != nil {
		return listedFile{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		panic("BUG: Lstat without a Stat_t")
	}
	used := max(stat.Atim.Nano(), stat.Mtim.Nano())
	return listedFile{entry: e, bytes: onDisk(stat.Size), used: time.Unix(0, used)}, nil
}
