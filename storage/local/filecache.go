package local

import (
	"cmp"
	"errors"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/fdfs"

	"golang.org/x/sys/unix"
)

// FileCacheOptions bound a FileCache. Zero means the default of a field, a negative number means
// none.
type FileCacheOptions struct {
	MaxFiles int // open descriptors; default 10,000
	// time between two checks of a file that is in use; default 1 s, negative = check at each use
	Valid   time.Duration
	MaxBody int64 // size of the largest file whose content is kept in memory; default 64 KiB
	// bytes in memory: half for these contents with their overhead, half for copies of larger trunk
	// slots; default 128 MiB
	Memory int64
}

func (o FileCacheOptions) withDefaults() FileCacheOptions {
	o.MaxFiles = max(cmp.Or(o.MaxFiles, 10_000), 0)
	o.Valid = max(cmp.Or(o.Valid, time.Second), 0)
	o.MaxBody = max(cmp.Or(o.MaxBody, 64<<10), -1)
	o.Memory = max(cmp.Or(o.Memory, 128<<20), 0)
	return o
}

// FileCache keeps files of a Store open, and small ones in memory, so that a repeated request costs
// no system call before the file is sent. It is safe for concurrent use.
//
// A file is checked for changes as often as its kind needs:
//
//	kind, where the content is      check
//	normal file, slave in memory    after Valid: stat of its name (same file, size and times)
//	trunk slot on disk              always: the slot's header; after Valid: stat of the trunk file
//	trunk slot in memory            after Valid: stat of the trunk file, and the slot's header
//	slave or appender on disk       always: fstat; after Valid: stat of its name
//	symbolic link                   after Valid: it is opened again
//
// The content of a trunk slot is compared with the CRC32 in the id when the slot is opened, before
// any byte is returned, and after Valid once more if the trunk file has been written to. Links in
// trunk slots are not cached. The content of a file of at most MaxBody is read into memory at the
// second request for a cached file, unless it is an appender. If the id has a CRC32, the content
// must match. A file that does not match stays cached as such, and is not found until it changes.
// Missing files and slots are not cached: replication may create them at any time. The trunk file
// of a missing slot stays open, see trunkfile.go.
//
// A larger trunk slot is copied into memory while it is checked, or at a later request, if there is
// room. Each eighth request that finds no copy may also evict copies of slots that were not
// requested meanwhile. The File stays open beside its copy. Bytes of a slot without a copy are
// compared when they are read, see slotcheck.go.
type FileCache struct {
	local  *Store
	o      FileCacheOptions
	epoch  time.Time // start of the clock of File.checked
	seed   maphash.Seed
	shards []shard
	copies *slotCopies

	purges    atomic.Uint64 // calls of Purge: a file whose opening began before the last one is not cached
	crcErrors atomic.Uint64

	closing sync.Once
	stop    chan struct{}
	sweeper sync.WaitGroup
}

// fileKey is a requested file id.
type fileKey struct{ group, logic string }

// cacheState is the part of a File that belongs to its FileCache.
type cacheState struct {
	key     fileKey
	viaSlot bool                  // reached through a trunk slot of type 'L'
	checked atomic.Int64          // time of the last successful check, by the cache's clock
	tried   atomic.Bool           // reading the content into memory has begun or failed
	written atomic.Int64          // modification time of the trunk file before the last check of the slot's content
	wrong   atomic.Pointer[error] // error of Open because the content is not that of the id
	copied  atomic.Pointer[slotCopy]
	copying atomic.Bool // one request reads the content for copied, and owns uses
	uses    int         // requests that found no copy
}

// Suspect marks the file for a check before the FileCache returns it again. Call it when the
// content could not be read completely, because the file was truncated or the disk fails.
func (f *File) Suspect() {
	f.written.Store(longAgo) // a write may have left the modification time
	f.checked.Store(longAgo)
}

// longAgo is before all times of a FileCache's clock.
const longAgo = math.MinInt64 / 2

// NewFileCache returns an empty cache in front of l. The caller closes the cache, then l.
func NewFileCache(l *Store, o FileCacheOptions) *FileCache {
	c := &FileCache{local: l, o: o.withDefaults(), epoch: time.Now(), seed: maphash.MakeSeed(),
		stop: make(chan struct{})}
	c.o.Memory /= 2 // the other half is for copies of slots
	c.shards = newShards(c.o)
	c.copies = newSlotCopies(c.o.Memory, func(f *File) bool { return c.shard(f.key).drop(f) })
	c.sweeper.Go(c.sweep)
	return c
}

// Path calls Store.Path.
func (c *FileCache) Path(id fdfs.FileID) (string, error) { return c.local.Path(id) }

// now returns the time of the cache's clock.
func (c *FileCache) now() int64 { return int64(time.Since(c.epoch)) }

func (c *FileCache) shard(key fileKey) *shard {
	return &c.shards[maphash.String(c.seed, key.logic)%uint64(len(c.shards))]
}

// Open opens a file as Store.Open does, with the same errors. For a cached file it allocates
// nothing.
func (c *FileCache) Open(id fdfs.FileID) (*File, error) {
	f, err := c.find(id)
	if err != nil {
		return nil, err
	}
	if wrong := f.wrong.Load(); wrong != nil {
		_ = f.Close() // read only: nothing is lost
		return nil, *wrong
	}
	return f, nil
}

// find returns the cached file or opens it. f.wrong may be set.
func (c *FileCache) find(id fdfs.FileID) (*File, error) {
	key := fileKey{id.Group, id.Logic}
	s := c.shard(key)
	if f := s.get(key); f != nil && c.validOrDrop(s, f) {
		s.hits.Add(1)
		c.copySlot(f)
		return c.bodyOrSelf(s, f), nil
	}
	s.misses.Add(1)
	return c.load(s, id)
}

// validOrDrop reports whether f is current. If it is not, it is removed from the cache and closed.
func (c *FileCache) validOrDrop(s *shard, f *File) bool {
	if c.current(f) {
		return true
	}
	s.drop(f)
	_ = f.Close() // read only: nothing is lost
	return false
}

// current reports whether f is still the file of its id.
func (c *FileCache) current(f *File) bool {
	now, checked := c.now(), f.checked.Load()
	// One request makes the check, and concurrent requests continue without it, so that a slow disk
	// delays only one request.
	if now-checked >= int64(c.o.Valid) && f.checked.CompareAndSwap(checked, now) && !c.unchanged(f) {
		return false
	}
	return f.body != nil || f.contentUnchanged()
}

// unchanged reports whether the name of f still leads to the file that was opened.
func (c *FileCache) unchanged(f *File) bool {
	if f.linked {
		return false // the target may have changed
	}
	if f.body != nil && f.content.Kind == fdfs.KindTrunk {
		return c.local.sameSlot(f)
	}
	dir, err := f.path.acquire()
	if err != nil {
		return false // the following opening returns the reason
	}
	defer dir.dropRef()
	seen, err := dir.stat(f.name)
	switch {
	case err != nil:
		return false
	case f.content.Kind != fdfs.KindTrunk:
		return seen == f.seen
	case seen.mtime.Nano() == f.written.Load():
		return seen.inode == f.seen.inode
	}
	return seen.inode == f.seen.inode && f.wrong.Load() == nil && f.checkAgain()
}

// reject marks f, whose content does not match its id: Open returns an error for it until the file
// changes.
func (c *FileCache) reject(f *File) {
	why := errCRC
	if f.content.Kind == fdfs.KindTrunk {
		why = ErrSlotContent
	}
	c.crcErrors.Add(1)
	f.wrong.Store(&why)
}

// contentUnchanged reports whether the open file still has the content: trunk slots, appenders and
// slaves may change in place.
func (f *File) contentUnchanged() bool {
	switch f.content.Kind {
	case fdfs.KindNormal:
		return true
	case fdfs.KindTrunk:
		typ, err := readSlot(f.disk, f.content)
		return err == nil && typ == fdfs.SlotFile
	}
	seen, err := f.disk.stat()
	return err == nil && seen == f.seen
}

// load opens a file that is not cached, once for all concurrent requests that may share it.
// Requests for a missing file do not wait for each other, since a wait costs more than the look-up.
func (c *FileCache) load(s *shard, id fdfs.FileID) (*File, error) {
	path, err := c.local.find(id)
	if err != nil {
		return nil, err
	}
	if err := c.missing(path, id); err != nil {
		return nil, err
	}
	key := fileKey{id.Group, id.Logic}
	f, ours, lead := s.join(key)
	if lead {
		return c.lead(s, key, id)
	}
	if ours != nil {
		<-ours.done
		if ours.err != nil {
			return nil, ours.err
		}
		f = s.get(key)
	}
	if f != nil && c.validOrDrop(s, f) {
		return f, nil
	}
	return c.openOnDisk(id) // it is not cached, or was changed at this moment
}

// lead opens the file of a flight, and ends the flight.
func (c *FileCache) lead(s *shard, key fileKey, id fdfs.FileID) (*File, error) {
	purges := c.purges.Load()
	file, err := (*File)(nil), errBroken // result if openOnDisk panics
	defer func() { s.complete(c, key, file, err, purges) }()
	if file, err = c.openOnDisk(id); err == errSlot {
		c.keepTrunkFile(id)
	}
	return file, err
}

var errBroken = errors.New("BUG: opening a file panicked")

// openOnDisk opens a file on disk. If no descriptor is left, it closes some cached files and tries
// again.
func (c *FileCache) openOnDisk(id fdfs.FileID) (*File, error) {
	now := c.now()  // before the file is opened
	id = id.Clone() // the File outlives the bytes of the request
	f, err := c.local.openUnchecked(id)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		for i := range c.shards {
			c.shards[i].evictSome()
		}
		f, err = c.local.openUnchecked(id)
	}
	if err != nil {
		return nil, err
	}
	f.checked.Store(now)
	copied := c.copyFor(f)
	switch err := c.local.slots.check(f, copied); {
	case err == nil:
		c.copies.publish(f, copied)
		if c.o.MaxFiles > 0 || !c.wantsBody(f) {
			return f, nil
		}
		if g := f.inMemory(c); g != nil {
			_ = f.Close() // read only: nothing is lost
			return g, nil
		}
		return f, nil
	case err == ErrSlotContent:
		copied.free()
		c.reject(f)
		return f, nil
	default:
		copied.free()
		_ = f.Close() // read only: nothing is lost
		return nil, err
	}
}

// copyFor reserves memory for the content of f, if f is a trunk slot that is too large for a body
// and there is room.
func (c *FileCache) copyFor(f *File) *slotCopy {
	if f.content.Kind != fdfs.KindTrunk || f.size <= c.o.MaxBody || !c.keeps(f) {
		return nil
	}
	return c.copies.reserve(f.size, false)
}

// keeps reports whether a file may be cached.
func (c *FileCache) keeps(f *File) bool {
	return !f.viaSlot && (f.body != nil || c.o.MaxFiles > 0)
}

// Purge removes every cached file whose id is the prefix or lies below it: "group1/M00/0A",
// "group1", or a whole id, with or without a trailing slash; "" means all. Files that are being
// opened meanwhile are not cached. It returns the number of removed files. Only a prefix that is no
// id costs a walk through all files.
func (c *FileCache) Purge(prefix string) int {
	c.purges.Add(1)
	prefix = strings.TrimSuffix(prefix, "/")
	if id, err := fdfs.Parse(prefix); err == nil {
		key := fileKey{id.Group, id.Logic}
		return c.shard(key).remove(key)
	}
	n := 0
	for i := range c.shards {
		n += c.shards[i].purge(prefix)
	}
	return n
}

// Close removes all files and disables the cache. Files in use stay open until their users close
// them.
func (c *FileCache) Close() error {
	c.closing.Do(func() { close(c.stop) })
	c.sweeper.Wait()
	for i := range c.shards {
		c.shards[i].close()
	}
	return nil
}

// sweep closes files that were not used lately, so that their disk can free the space of deleted
// ones.
func (c *FileCache) sweep() {
	idle := max(2*c.o.Valid, 20*time.Second)
	tick := time.NewTicker(idle / 2)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
			for i := range c.shards {
				c.shards[i].dropBefore(c.now() - int64(idle))
			}
		}
	}
}

// FileCacheStats are the counters of a FileCache.
type FileCacheStats struct {
	Hits, Misses uint64 // since it was created
	CRCErrors    uint64 // files whose content did not have the CRC32 of their id
	Files        int    // open files in the cache
	Bodies       int    // contents in memory
	Bytes        int64  // memory used by Bodies
	Descriptors  int64  // open descriptors of the Store, also by others
}

// Stats returns the counters.
func (c *FileCache) Stats() FileCacheStats {
	t := FileCacheStats{CRCErrors: c.crcErrors.Load(), Descriptors: c.local.opened.Load()}
	t.Bodies, t.Bytes = c.copies.stats()
	for i := range c.shards {
		c.shards[i].addTo(&t)
	}
	return t
}
