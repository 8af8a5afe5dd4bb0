package tier

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/fdfs/backoff"

	"golang.org/x/sys/unix"
)

// DiskOptions are the folder of a Disk and its limits.
type DiskOptions struct {
	Path   string        // folder, which is created if it is missing
	Max    int64         // bytes on disk, with headers and rounded up to blocks; default 10 GiB
	Queue  int64         // bytes that wait to be written; further segments are not stored; default 32 MiB
	Retry  time.Duration // back-off: reads or writes are disabled for this time after a failure; default 1 min
	Logger *slog.Logger  // default: none
	// Ready is closed when content on disk may be used; nil = it may be used at once. Until then
	// all look-ups miss.
	Ready <-chan struct{}
	// Check returns an error if the folder must not be used. It may access the disk.
	Check func() error
	// Successor: another process is about to release the folder, see Await.
	Successor bool

	failure func(op string) error // for tests: called before each operation, which it can fail
}

// Disk is a tier of files, one for each segment. It survives a restart, and a kill of the process
// at any moment:
//
//   - A file is written under a temporary name and then renamed, so the name of a segment is always
//     that of a whole file.
//   - No file is synced, so files may be torn after a crash of the host. The header has a checksum,
//     and each chunk is compared with its checksum before its first use in a process, which takes
//     some 50 microseconds. Later readers get the chunk by sendfile(2) unread.
//   - A disk may change its content. So a chunk is compared again after a day, see checks.
//   - A torn file, or one of another format, is removed at its first use if it has the name of a
//     segment. Apart from the temporary file, files with other names are never removed.
//
// At start the files are listed in the background, and the least recently used ones are evicted
// first. The names in one of the 256 folders are read earlier if a segment in it is requested or
// purged. An entry takes about 250 bytes of memory, and 80 more once it was used.
//
// After a failed write or read, the disk gets no writes or reads for DiskOptions.Retry, or up to a
// quarter less; then the next one shows whether the disk works again. If the file system is full,
// the oldest entries are evicted meanwhile. One goroutine writes segments, from a bounded queue in
// which Get finds them, and removes files.
//
// No method waits longer for the disk than diskIO allows, and none does so with mu held. While the
// disk hangs the tier is off, as if it were empty; it is on again when the disk responds. A disk
// that hangs or fails at start is opened later.
type Disk struct {
	o        DiskOptions
	io       *diskIO
	root     atomic.Pointer[diskRoot] // nil until the folder is open
	opening  sync.Mutex               // held while the folder is opened or left, by goroutines that may hang
	jobs     chan *job
	removals chan struct{}      // holds one value after index.startUnlink
	flushes  chan chan struct{} // each is closed when all files in index.queue were removed, or have failed
	life     context.Context    // ends with Close or Release
	end      context.CancelFunc
	tasks    sync.WaitGroup // the goroutines attend, work and list

	folders [folders]folder
	named   atomic.Bool // all folders are named, see folder; changed with mu held
	syncing sync.Mutex  // held by Sync

	mu      sync.Mutex         // guards the fields below, the end of life, and fields of entries without atomics
	purged  map[Match]struct{} // purges since the start, while named is false
	writing backoff.State
	reading backoff.State
	index   index
	listed  bool       // the size of every entry is known, or could not be read twice
	pending Files[job] // waiting to be written or being written, and not canceled
	active  *job       // being written; a canceled one stays until its file is removed
	queued  int64      // bytes of all jobs that have not ended, canceled ones included
	writes  int64      // bytes of the budget for active
	early   int64      // bytes of the budget for segments that were queued while isListing
	stats   Stats      // only the counters are set
}

// path returns the name of the file of a segment, below root; empty if no file may have this key.
func (d *Disk) path(key Key) string {
	name, ok := encodeName(key)
	if !ok {
		return ""
	}
	return filepath.Join(folderName(folderOf(key.File)), name)
}

// Get returns a view of the segment if it is of version v; one of another version is removed.
func (d *Disk) Get(key Key, v Version, touch bool) (View, bool) {
	if !d.isReady() || !d.isNamed(key.File) {
		return View{}, false
	}
	view, was := d.look(key, v, touch)
	if was == nil {
		return view, view != View{}
	}
	f := d.openFile(key, was)
	if f == nil {
		return View{}, false
	}
	if f.header.version != v {
		d.invalidate(f, was)
		return View{}, false
	}
	return d.admit(f, was, touch)
}

// look finds a segment that is open, or waits to be written. If the file of the segment must be
// opened first, was is its entry; otherwise nil.
func (d *Disk) look(key Key, v Version, touch bool) (view View, was *diskEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j := d.pending.Get(key); j != nil {
		if j.segment.Version == v {
			return View{segment: j.segment}, nil
		}
		j.canceled = true
		d.pending.Remove(key)
		return View{}, nil
	}
	e := d.index.get(key, touch)
	switch {
	case e == nil, d.readsDisabled(), d.isActive(key): // active and not pending: canceled
		return View{}, nil
	case e.file != nil && e.file.header.version == v:
		e.file.users++
		return View{file: e.file}, nil
	}
	return View{}, e
}

// isActive reports whether the segment is being written. mu is held.
func (d *Disk) isActive(key Key) bool { return d.active != nil && d.active.segment.Key == key }

// openFile opens the file of a segment and reads its header. It returns nil without a valid file.
// was is the entry of the segment before: if the file is missing, openFile removes this entry only,
// not a newer one.
func (d *Disk) openFile(key Key, was *diskEntry) *openFile {
	path := d.path(key)
	if path == "" {
		return nil
	}
	f, err := do(d.io, "open", readTime, func() (*openFile, error) { return openSegment(d, path, key) })
	switch {
	case err == nil:
		return f
	case errors.Is(err, fs.ErrNotExist):
		d.removeMissing(key, was)
	case errors.Is(err, errFormat):
		d.o.Logger.Warn("removed a file from the cache", "path", path, "err", err)
		d.mu.Lock()
		d.stats.Corrupt++
		d.startUnlink(key)
		d.mu.Unlock()
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, errOff):
		// no failure of the disk, or one that was logged
	default:
		d.failed(&d.reading, "cannot read from the cache's disk", err)
	}
	return nil
}

// admit makes an opened file the file of its entry. If the index has another entry than was, or
// none, the segment was purged, evicted or replaced while its file was opened: that is a miss.
func (d *Disk) admit(f *openFile, was *diskEntry, touch bool) (View, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.index.get(f.header.key, touch)
	if e == nil || e != was {
		f.close()
		return View{}, false
	}
	d.index.size(e, onDisk(f.header.size+f.header.length), &d.index.live)
	if e.file != nil && e.file.header.version == f.header.version { // another reader has opened the file too
		f.close()
		e.file.users++
		return View{file: e.file}, true
	}
	c := e.checks.Load()
	if c == nil || c.inode != f.inode {
		c = &checks{inode: f.inode}
		e.checks.Store(c)
	}
	e.file, f.entry, f.checks, f.users = f, e, c, 1
	return View{file: f}, true
}

// isCurrent reports whether an open file is still the file of its entry, so that the segment was
// not purged.
func (d *Disk) isCurrent(f *openFile) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.index.get(f.header.key, false)
	return e != nil && e.file == f
}

// invalidate removes an opened file of another version than the requested one, unless a newer
// segment has taken its place: the index has another entry than was, or a segment is in the queue
// or being written.
func (d *Disk) invalidate(f *openFile, was *diskEntry) {
	key := f.header.key
	f.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.index.get(key, false) == was && d.pending.Get(key) == nil && !d.isActive(key) {
		d.startUnlink(key)
	}
}

// isReady reports whether content on disk may be used.
func (d *Disk) isReady() bool {
	if d.root.Load() == nil {
		return false
	}
	if d.o.Ready == nil {
		return true
	}
	select {
	case <-d.o.Ready:
		return true
	default:
		return false
	}
}

// Holds returns the version of a stored segment.
func (d *Disk) Holds(key Key) (Version, bool) {
	if !d.isReady() || !d.isNamed(key.File) {
		return Version{}, false
	}
	d.mu.Lock()
	j, e := d.pending.Get(key), d.index.get(key, false)
	var open *openFile
	if e != nil {
		open = e.file
	}
	off := d.readsDisabled() || d.isActive(key)
	d.mu.Unlock()
	switch {
	case j != nil:
		return j.segment.Version, true
	case off, e == nil:
		return Version{}, false
	case open != nil:
		return open.header.version, true
	}
	f := d.openFile(key, e)
	if f == nil {
		return Version{}, false
	}
	f.close()
	return f.header.version, true
}

// removeMissing removes the entry of a file that is missing, unless the index has another entry
// than only.
func (d *Disk) removeMissing(key Key, only *diskEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.index.get(key, false) == only {
		d.index.remove(key)
	}
}

// isDisabled reports whether b is in back-off: reads or writes are disabled after a failure.
func isDisabled(b *backoff.State) bool { return b.InBackoff(time.Now()) }

// readsDisabled reports whether reads are disabled: the disk hangs, or one has failed. mu is held.
func (d *Disk) readsDisabled() bool { return d.io.isOff.Load() || isDisabled(&d.reading) }

// failed disables reads or writes for DiskOptions.Retry, unless they are disabled already.
func (d *Disk) failed(b *backoff.State, what string, err error) {
	d.mu.Lock()
	begins := !isDisabled(b)
	if begins {
		b.Fail(backoff.Policy{First: d.o.Retry, Max: d.o.Retry}, time.Now())
		d.stats.Failed++
	}
	d.mu.Unlock()
	if begins {
		d.o.Logger.Error(what+", disk tier disabled for "+d.o.Retry.String(), "path", d.o.Path, "err", err)
	}
}

// Stats returns the metrics.
func (d *Disk) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Failed += d.io.hangs.Load()
	s.Entries, s.Bytes, s.Budget = d.index.len(), d.index.used, d.o.Max
	s.Disabled = d.root.Load() == nil || isDisabled(&d.writing) || d.readsDisabled()
	return s
}

// Listed reports whether the files that were on the disk at start are listed. Files whose size
// could not be read twice are not.
func (d *Disk) Listed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.listed
}
