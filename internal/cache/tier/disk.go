package tier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/fdfs/backoff"

	"golang.org/x/sys/unix"
)

// DiskOptions say where segments are stored, and how much.
type DiskOptions struct {
	Path   string        // folder; it is made when it is not there
	Max    int64         // bytes on disk, headers and what a file system rounds up included; default 10 GiB
	Queue  int64         // bytes in memory that wait to be written; what does not fit is not stored; default 32 MiB
	Retry  time.Duration // how long a disk that failed is disabled; default 1 min
	Logger *slog.Logger  // default: none
	// Ready is closed when what is on disk may be used; nil = at once. Until then everything is a
	// miss.
	Ready <-chan struct{}

	failure func(op string) error // for tests: the error of an operation
}

// Disk is a tier of files, one a segment. It survives a restart and the death of the process at any
// moment:
//
//   - A file is written under a name for this time only and then renamed, so a name stands for a
//     whole file.
//   - No file is synced: after the host itself went down it may be torn. The header's checksum
//     covers all that it says, and each chunk is compared with its checksum before it is used for
//     the first time in a process, also after a restart. That takes some 50 microseconds; later
//     readers get the chunk by sendfile(2) unread.
//   - A disk may change what it stores. So a chunk is compared again before it is used when it
//     comes from the disk again, and after a day: checks tells more.
//   - What is torn or of another format is removed when it is met, if it has the name of a
//     segment. Nothing else is ever removed.
//
// At start the list of what is there is made in the background, oldest first to go. The names in
// one of the 256 folders are read before that where a segment in it is asked for, or purged. An
// entry takes about 250 bytes of memory, and 80 more when it was used.
//
// A disk that cannot be written to gets no writes, and one that cannot be read no reads, for
// DiskOptions.Retry, or up to a quarter less; then the next one is the test whether it works again.
// Nothing waits for writes: they are made in the background from a bounded queue, and what waits in
// it is found by Get.
type Disk struct {
	o     DiskOptions
	root  *diskRoot
	jobs  chan *job
	life  context.Context // ends with Close
	end   context.CancelFunc
	tasks sync.WaitGroup // the goroutines

	inPageCache pageCache
	rechecks    recheckLimit
	released    atomic.Bool // another process may have the folder
	folders     [folders]folder
	named       atomic.Bool // all folders are
	syncing     sync.Mutex  // held by Sync

	mu      sync.Mutex // guards what follows, and the fields of entries that are not atomic
	writing backoff.State
	reading backoff.State
	index   index
	listed  bool       // the size of every entry is known
	pending files[job] // to be written, and not canceled
	active  *job       // being written; one that was canceled meanwhile, until its file is gone again
	queued  int64      // bytes of the jobs that are not over, also of canceled ones
	writes  int64      // bytes of the budget for what is being written
	stats   Stats      // what is counted
}

// OpenDisk opens a tier, which the caller closes.
func OpenDisk(o DiskOptions) (*Disk, error) {
	if o.Max == 0 {
		o.Max = 10 << 30
	}
	if o.Queue == 0 {
		o.Queue = 32 << 20
	}
	if o.Retry == 0 {
		o.Retry = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.failure == nil {
		o.failure = func(string) error { return nil }
	}
	root, err := openRoot(o.Path)
	if err != nil {
		return nil, fmt.Errorf("cannot use %q for the cache: %w", o.Path, err)
	}
	d := &Disk{o: o, root: root, jobs: make(chan *job, maxJobs), index: newIndex(),
		pending: make(files[job]), rechecks: newRecheckLimit()}
	d.life, d.end = context.WithCancel(context.Background())
	d.inPageCache = d.findPageCache()
	d.tasks.Go(d.write)
	d.tasks.Go(d.list)
	return d, nil
}

// Release leaves the folder to another process. Nothing is written or removed there any more, and
// what is still to be written is not; what is there is still found and read, until the other
// process removes it.
func (d *Disk) Release() error {
	d.end()
	d.tasks.Wait()
	d.released.Store(true)
	return d.root.unlock()
}

// Close ends the background work. What is still to be written is not. Views that were given out
// stay usable.
func (d *Disk) Close() error {
	d.end()
	d.tasks.Wait()
	return d.root.Close()
}

// path is where a segment is stored, below root; empty when it cannot be.
func (d *Disk) path(key Key) string {
	name, ok := encodeName(key)
	if !ok {
		return ""
	}
	return filepath.Join(folderName(folderOf(key.File)), name)
}

// Get: see the contract at the head of the package.
func (d *Disk) Get(key Key, v Version, touch bool) (View, bool) {
	if !d.isReady() || !d.isNamed(key.File) {
		return View{}, false
	}
	view, was := d.look(key, v, touch)
	if was == nil {
		return view, view != View{}
	}
	f := d.open(key, was)
	if f == nil {
		return View{}, false
	}
	if f.header.version != v {
		d.invalidate(f, was)
		return View{}, false
	}
	return d.admit(f, was, touch)
}

// look finds a segment that is open, or waits to be written. was is the entry of one whose file is
// to be opened; nil: view is all there is.
func (d *Disk) look(key Key, v Version, touch bool) (view View, was *diskEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j := d.pending.get(key); j != nil {
		if j.segment.Version == v {
			return View{segment: j.segment}, nil
		}
		j.canceled = true
		d.pending.remove(key)
		return View{}, nil
	}
	e := d.index.get(key, touch)
	switch {
	case e == nil, isDisabled(&d.reading), d.isActive(key): // what is active and not pending was canceled
		return View{}, nil
	case e.file != nil && e.file.header.version == v:
		e.file.users++
		return View{file: e.file}, nil
	}
	return View{}, e
}

// isActive tells whether a segment is being written. mu is held.
func (d *Disk) isActive(key Key) bool { return d.active != nil && d.active.segment.Key == key }

// open opens the file of a segment and reads its header; nil when there is none that is good. was
// is the entry that it had before: where there is no file, that one is over, and not one that a
// writer has made since.
func (d *Disk) open(key Key, was *diskEntry) *openFile {
	path := d.path(key)
	if path == "" {
		return nil
	}
	f, err := openSegment(d, path, key, was)
	switch {
	case err == nil:
		return f
	case errors.Is(err, fs.ErrNotExist):
		d.removeMissing(key, was)
	case errors.Is(err, errFormat):
		d.o.Logger.Warn("removed a file from the cache", "path", path, "err", err)
		d.mu.Lock()
		d.stats.Corrupt++
		d.index.startUnlink(key)
		d.mu.Unlock()
		d.unlink(key)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		// that is not the disk's fault
	default:
		d.failed(&d.reading, "cannot read from the cache's disk", err)
	}
	return nil
}

// admit makes an opened file the one that its entry is read through, unless that is not was any
// more: then the segment was purged, evicted or replaced while its file was opened.
func (d *Disk) admit(f *openFile, was *diskEntry, touch bool) (View, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.index.get(f.header.key, touch)
	if e == nil || e != was {
		f.close()
		return View{}, false
	}
	d.index.size(e, onDisk(f.header.size+f.header.length), &d.index.live)
	if e.file != nil && e.file.header.version == f.header.version { // another reader was quicker
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

// isCurrent tells whether a view is of a file that its entry is read through: it was not purged
// since.
func (d *Disk) isCurrent(f *openFile) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.index.get(f.header.key, false)
	return e != nil && e.file == f
}

// invalidate removes an opened file of another version than the one that is wanted, unless there is
// something newer in its place by now: another entry than was, or one that is being written.
func (d *Disk) invalidate(f *openFile, was *diskEntry) {
	key := f.header.key
	d.mu.Lock()
	mine := d.index.get(key, false) == was && d.pending.get(key) == nil && !d.isActive(key)
	if mine {
		d.index.startUnlink(key)
	}
	d.mu.Unlock()
	f.close()
	if mine {
		d.unlink(key)
	}
}

// isReady tells whether what is on disk may be used.
func (d *Disk) isReady() bool {
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

// Holds: see the contract at the head of the package.
func (d *Disk) Holds(key Key) (Version, bool) {
	if !d.isReady() || !d.isNamed(key.File) {
		return Version{}, false
	}
	d.mu.Lock()
	j, e := d.pending.get(key), d.index.get(key, false)
	var open *openFile
	if e != nil {
		open = e.file
	}
	off := isDisabled(&d.reading) || d.isActive(key)
	d.mu.Unlock()
	switch {
	case j != nil:
		return j.segment.Version, true
	case off, e == nil:
		return Version{}, false
	case open != nil:
		return open.header.version, true
	}
	f := d.open(key, e)
	if f == nil {
		return Version{}, false
	}
	f.close()
	return f.header.version, true
}

// removeMissing removes an entry from the index, unless another one is in its place.
func (d *Disk) removeMissing(key Key, only *diskEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.index.get(key, false) == only {
		d.index.remove(key)
	}
}

// isDisabled reports whether the disk is disabled after a failure.
func isDisabled(b *backoff.State) bool { return b.InBackoff(time.Now()) }

// failed disables reads or writes of the disk for DiskOptions.Retry.
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

// Stats gives the metrics.
func (d *Disk) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Entries, s.Bytes, s.Budget = d.index.len(), d.index.used, d.o.Max
	s.Disabled = isDisabled(&d.writing) || isDisabled(&d.reading)
	return s
}

// Listed tells whether the list of what was on the disk at start is complete.
func (d *Disk) Listed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.listed
}
