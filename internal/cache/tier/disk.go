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

	"fastdfs-gateway/internal/backoff"

	"golang.org/x/sys/unix"
)

// DiskOptions say where segments are stored, and how much.
type DiskOptions struct {
	Path   string        // folder; it is made when it is not there
	Max    int64         // bytes on disk, headers and what a file system rounds up included; default 10 GiB
	Queue  int64         // bytes in memory that wait to be written; what does not fit is not stored; default 32 MiB
	Retry  time.Duration // how long a disk that failed is left alone; default 1 min
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
// At start the list of what is there is made in the background, oldest first to go; until it is
// complete a segment that is not listed is looked for by its name. An entry takes about 250 bytes
// of memory, and 80 more when it was used.
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
	rechecks    allowance
	released    atomic.Bool // another process may have the folder
	removals    [folders]removals

	mu      sync.Mutex // guards what follows, and the fields of entries that are not atomic
	writing backoff.State
	reading backoff.State
	index   index
	listed  bool         // the index is complete
	pending map[Key]*job // to be written, and not dropped
	active  *job         // being written; one that was dropped meanwhile, until its file is gone again
	queued  int64        // bytes of the jobs that are not over, also of those that were dropped
	writes  int64        // bytes of the budget for what is being written
	drops   uint64       // calls of Drop so far: what was looked up before one may be what it dropped
	stats   Stats        // what is counted
}

var _ Tier = (*Disk)(nil)

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
		pending: make(map[Key]*job)}
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

// Get implements Tier.
func (d *Disk) Get(key Key, v Version, touch bool) (View, bool) {
	if !d.isReady() {
		return View{}, false
	}
	view, was, drops, known := d.look(key, v, touch)
	if known {
		return view, view != View{}
	}
	f := d.open(key, was)
	if f == nil {
		return View{}, false
	}
	if f.header.version != v {
		d.discard(f, was)
		return View{}, false
	}
	return d.admit(f, drops, touch)
}

// look finds out what can be told without looking at the disk. What it does not know may be in a
// file; was, the entry that there is now, is for open, and drops for admit.
func (d *Disk) look(key Key, v Version, touch bool) (view View, was *entry, drops uint64, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j := d.pending[key]; j != nil {
		if j.segment.Version == v {
			return View{segment: j.segment}, nil, 0, true
		}
		j.dropped = true
		delete(d.pending, key)
		return View{}, nil, 0, true
	}
	e := d.index.get(key, touch)
	switch {
	case isOff(&d.reading), d.isActive(key), e == nil && d.listed: // what is active and not pending was dropped
		return View{}, nil, 0, true
	case e != nil && e.file != nil && e.file.header.version == v:
		e.file.users++
		return View{file: e.file}, nil, 0, true
	}
	return View{}, e, d.drops, false
}

// isActive tells whether a segment is being written. mu is held.
func (d *Disk) isActive(key Key) bool { return d.active != nil && d.active.segment.Key == key }

// open opens the file of a segment and reads its header; nil when there is none that is good. was
// is the entry that it had before: where there is no file, that one is over, and not one that a
// writer has made since.
func (d *Disk) open(key Key, was *entry) *openFile {
	path := d.path(key)
	if path == "" {
		return nil
	}
	f, err := openSegment(d, path, key, was)
	switch {
	case err == nil:
		return f
	case errors.Is(err, fs.ErrNotExist):
		if was != nil {
			d.forget(key, was)
		}
	case errors.Is(err, errFormat):
		d.o.Logger.Warn("removed a file from the cache", "path", path, "err", err)
		d.mu.Lock()
		d.stats.Damaged++
		d.index.remove(key)
		d.mu.Unlock()
		d.unlink(path)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		// that is not the disk's fault
	default:
		d.failed(&d.reading, "cannot read from the cache's disk", err)
	}
	return nil
}

// admit makes an opened file the one that its entry is read through.
func (d *Disk) admit(f *openFile, drops uint64, touch bool) (View, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.drops != drops {
		f.close()
		return View{}, false
	}
	e := d.index.get(f.header.key, touch)
	if e == nil {
		e = &entry{bytes: onDisk(f.header.size + f.header.length)}
		d.index.add(f.header.key, e)
	}
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

// discard removes an opened file of another version than the one that is wanted, unless there is
// something newer in its place by now: another entry than was, or one that is being written.
func (d *Disk) discard(f *openFile, was *entry) {
	key := f.header.key
	d.mu.Lock()
	mine := d.index.get(key, false) == was && d.pending[key] == nil && !d.isActive(key)
	if mine {
		d.index.remove(key)
	}
	d.mu.Unlock()
	f.close()
	if mine {
		d.unlink(f.path)
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

// Holds implements Tier.
func (d *Disk) Holds(key Key) (Version, bool) {
	if !d.isReady() {
		return Version{}, false
	}
	d.mu.Lock()
	j, e, listed := d.pending[key], d.index.get(key, false), d.listed
	var open *openFile
	if e != nil {
		open = e.file
	}
	off := isOff(&d.reading) || d.isActive(key)
	d.mu.Unlock()
	switch {
	case j != nil:
		return j.segment.Version, true
	case off, e == nil && listed:
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

// forget drops an entry from the index; where only is not nil, when it is that one.
func (d *Disk) forget(key Key, only *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.index.get(key, false); e != nil && (only == nil || only == e) {
		d.index.remove(key)
	}
}

// unlink removes a file. That it is gone already is well.
func (d *Disk) unlink(path string) {
	if d.released.Load() {
		return // by now it may be another process's
	}
	err := d.o.failure("remove")
	if err == nil {
		err = d.remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.failed(&d.writing, "cannot remove from the cache's disk", err)
	}
}

// unlinkAll removes the files of segments that were evicted.
func (d *Disk) unlinkAll(keys []Key) {
	for _, key := range keys {
		d.unlink(d.path(key))
	}
}

// isOff tells whether the disk is left alone for a while.
func isOff(b *backoff.State) bool { return b.InBackoff(time.Now()) }

// failed leaves the disk alone for a while.
func (d *Disk) failed(b *backoff.State, what string, err error) {
	d.mu.Lock()
	begins := !isOff(b)
	if begins {
		b.Fail(backoff.Policy{First: d.o.Retry, Max: d.o.Retry}, time.Now())
		d.stats.Failed++
	}
	d.mu.Unlock()
	if begins {
		d.o.Logger.Error(what+", it is left alone for a while", "path", d.o.Path, "for", d.o.Retry, "err", err)
	}
}

// Stats gives the metrics.
func (d *Disk) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Entries, s.Bytes, s.Budget = d.index.len(), d.index.used, d.o.Max
	s.Off = isOff(&d.writing) || isOff(&d.reading)
	return s
}

// Listed tells whether the list of what was on the disk at start is complete.
func (d *Disk) Listed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.listed
}
