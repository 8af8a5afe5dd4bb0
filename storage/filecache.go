package storage

import (
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/fdfs"

	"golang.org/x/sys/unix"
)

// FileCacheOptions say how much a FileCache keeps. Zero means the default of each field, a negative number none of it.
type FileCacheOptions struct {
	MaxFiles int           // files with an open descriptor; default 10,000
	Valid    time.Duration // after which a file is looked at again when it is used; default 1 s, negative = at each use
	MaxBody  int64         // size of the largest file whose content is kept in memory; default 64 KiB
	Memory   int64         // bytes for these, bookkeeping included; default 128 MiB
}

func (o FileCacheOptions) withDefaults() FileCacheOptions {
	o.MaxFiles = max(orDefault(o.MaxFiles, 10_000), 0)
	o.Valid = max(orDefault(o.Valid, time.Second), 0)
	o.MaxBody = max(orDefault(o.MaxBody, 64<<10), -1)
	o.Memory = max(orDefault(o.Memory, 128<<20), 0)
	return o
}

func orDefault[T comparable](value, def T) T {
	var zero T
	if value == zero {
		return def
	}
	return value
}

// FileCache keeps files of a Local open, and small ones in memory, so that a file that is asked for again costs no call to the
// kernel before it is sent. It is safe for concurrent use.
//
// What it hands out is as fresh as the file needs:
//
//	kind, where the content is      looked at
//	normal file, slave in memory    after Valid: one stat of its name (same file, size and times)
//	trunk slot on disk              at each use: the slot's header; after Valid also a stat of the trunk file
//	trunk slot in memory            after Valid: a stat of the trunk file and the slot's header
//	slave or appender on disk       at each use: fstat; after Valid also a stat of its name
//	symbolic link                   after Valid: it is followed anew
//
// The content of a trunk slot is compared with the CRC32 in the id when the slot is opened, before any
// of it is handed out, and after Valid once more where the trunk file has been written to meanwhile.
// Links in trunk slots are not kept at all. Content goes to memory when a file is asked for the second
// time while it is kept; that of an appender never does. Where an id has a CRC32, the content must
// have it. One that has another is kept as such, and is not found until it changes. Files that are
// not there are not remembered: replication may bring them at any time.
type FileCache struct {
	local  *Local
	o      FileCacheOptions
	epoch  time.Time // of the clock that File.checked is read on
	seed   maphash.Seed
	shards []shard
	trunks trunkFiles

	purges    atomic.Uint64 // how often Forget was called, and Close: what was opened before is not kept after it
	crcErrors atomic.Uint64

	closing sync.Once
	stop    chan struct{}
	sweeper sync.WaitGroup
}

// fileKey is a file id as it was asked for.
type fileKey struct{ group, logic string }

// NewFileCache returns an empty cache in front of l. The caller closes it, and l after it.
func NewFileCache(l *Local, o FileCacheOptions) *FileCache {
	c := &FileCache{local: l, o: o.withDefaults(), epoch: time.Now(), seed: maphash.MakeSeed(), stop: make(chan struct{})}
	c.shards = newShards(c.o)
	c.sweeper.Go(c.sweep)
	return c
}

// Path is that of the Local.
func (c *FileCache) Path(id fdfs.FileID) (string, error) { return c.local.Path(id) }

// now reads the cache's clock.
func (c *FileCache) now() int64 { return int64(time.Since(c.epoch)) }

func (c *FileCache) shard(key fileKey) *shard {
	return &c.shards[maphash.String(c.seed, key.logic)%uint64(len(c.shards))]
}

// Open opens a file as Local.Open does, with the same errors. For a file that is kept it allocates nothing.
func (c *FileCache) Open(id fdfs.FileID) (*File, error) {
	f, err := c.find(id)
	if err != nil {
		return nil, err
	}
	if wrong := f.wrong.Load(); wrong != nil {
		_ = f.Close() // it was only read from: nothing can be lost
		return nil, *wrong
	}
	return f, nil
}

// find gives the file that is kept, or opens it. Its content may have turned out to be wrong.
func (c *FileCache) find(id fdfs.FileID) (*File, error) {
	key := fileKey{id.Group, id.Logic}
	s := c.shard(key)
	if f := s.get(key); f != nil && c.stillGood(s, f) {
		s.hits.Add(1)
		return c.withBody(s, f), nil
	}
	s.misses.Add(1)
	return c.load(s, id)
}

// stillGood gives f back where it is not current any more.
func (c *FileCache) stillGood(s *shard, f *File) bool {
	if c.current(f) {
		return true
	}
	s.drop(f)
	_ = f.Close() // it was only read from: nothing can be lost
	return false
}

// current tells whether f is still what is to be served under its id.
func (c *FileCache) current(f *File) bool {
	now, checked := c.now(), f.checked.Load()
	// One request looks; those beside it go on meanwhile, so that a slow disk holds up one of them only.
	if now-checked >= int64(c.o.Valid) && f.checked.CompareAndSwap(checked, now) && !c.unmoved(f) {
		return false
	}
	return f.body != nil || f.untouched()
}

// unmoved reports whether the name of f still leads to the file as it was opened.
func (c *FileCache) unmoved(f *File) bool {
	if f.linked {
		return false // the name alone does not tell
	}
	if f.body != nil && f.content.Kind == fdfs.KindTrunk {
		return c.local.sameSlot(f, &c.trunks)
	}
	dir, err := f.path.acquire()
	if err != nil {
		return false // opening it will say why
	}
	defer dir.release()
	seen, err := dir.stat(f.name)
	switch {
	case err != nil:
		return false
	case f.content.Kind != fdfs.KindTrunk:
		return seen == f.seen
	case seen.mtime.Nano() == f.written.Load():
		return seen.sameFile(&f.seen)
	}
	return seen.sameFile(&f.seen) && f.wrong.Load() == nil && c.local.slots.check(f) == nil
}

// reject keeps f, whose content is not that of its id, from being served until the file changes.
func (c *FileCache) reject(f *File) {
	why := errCRC
	if f.content.Kind == fdfs.KindTrunk {
		why = ErrSlotContent
	}
	c.crcErrors.Add(1)
	f.wrong.Store(&why)
}

// untouched tells whether the open file still has the content: that of a trunk slot, an appender or a slave changes in place.
func (f *File) untouched() bool {
	switch f.content.Kind {
	case fdfs.KindNormal:
		return true
	case fdfs.KindTrunk:
		typ, err := readSlot(f.disk.fd, f.content)
		return err == nil && typ == fdfs.SlotFile
	}
	seen, err := f.disk.stat()
	return err == nil && seen == f.seen
}

// load opens a file that is not kept: once, however many ask for it at the same time. Those who ask for one that is not there do
// not wait for each other: that would cost more than to look.
func (c *FileCache) load(s *shard, id fdfs.FileID) (*File, error) {
	if c.local.missing(id) {
		return nil, ErrNotFound
	}
	for {
		f, ours, lead := s.join(id)
		switch {
		case lead:
			return c.lead(s, ours, id)
		case ours != nil:
			<-ours.done
			if f = ours.file; f == nil {
				return nil, ours.err
			}
		}
		if c.stillGood(s, f) { // it was opened for another request
			return f, nil
		}
	}
}

// lead opens the file of a flight for all that wait for it.
func (c *FileCache) lead(s *shard, ours *flight, id fdfs.FileID) (*File, error) {
	purges := c.purges.Load()
	file, err := (*File)(nil), errBroken // unless what follows comes to an end
	defer func() { s.land(c, ours, file, err, purges) }()
	file, err = c.open(id)
	return file, err
}

var errBroken = errors.New("BUG: opening a file panicked")

// open opens a file on disk. When descriptors run out it gives up some of those that are kept.
func (c *FileCache) open(id fdfs.FileID) (*File, error) {
	now := c.now() // before the file is looked at
	f, err := c.local.open(id, &c.trunks)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		for i := range c.shards {
			c.shards[i].shed()
		}
		f, err = c.local.open(id, &c.trunks)
	}
	if err != nil {
		return nil, err
	}
	f.own(id)
	f.checked.Store(now)
	if c.o.MaxFiles == 0 && c.wantsBody(f) {
		if g := f.inMemory(c); g != nil {
			_ = f.Close() // it was only read from: nothing can be lost
			return g, nil
		}
	}
	if f.wrong.Load() != nil {
		return f, nil
	}
	switch err := c.local.slots.check(f); {
	case err == ErrSlotContent:
		c.reject(f)
	case err != nil:
		_ = f.Close() // it was only read from: nothing can be lost
		return nil, err
	}
	return f, nil
}

// keeps tells whether a file may be kept.
func (c *FileCache) keeps(f *File) bool {
	return !f.viaSlot && (f.body != nil || c.o.MaxFiles > 0)
}

// Forget drops every file whose id is the prefix or lies below it: "group1/M00/0A", "group1", or a whole id, with or without a
// slash at the end; "" is all. Requests that are opening such a file do not bring it back. It returns the number of files dropped.
func (c *FileCache) Forget(prefix string) int {
	c.purges.Add(1)
	n := 0
	for i := range c.shards {
		n += c.shards[i].forget(prefix)
	}
	return n
}

// Close drops all files, and keeps none from then on. Those in use stay open until their users are done.
func (c *FileCache) Close() error {
	c.closing.Do(func() { close(c.stop) })
	c.sweeper.Wait()
	for i := range c.shards {
		c.shards[i].close()
	}
	return nil
}

// sweep closes files that nobody has asked for lately, so that the space of deleted ones is given back to their disk.
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

// FileCacheStats are counts of a FileCache.
type FileCacheStats struct {
	Hits, Misses uint64 // since it was made
	CRCErrors    uint64 // files that did not have the CRC32 of their id when their content was read
	Files        int    // kept open
	Bodies       int    // in memory
	Bytes        int64  // that these take
	Descriptors  int64  // of files of the Local that are open, by whomever
}

// Stats returns the counts.
func (c *FileCache) Stats() FileCacheStats {
	t := FileCacheStats{CRCErrors: c.crcErrors.Load(), Descriptors: c.local.opened.Load()}
	for i := range c.shards {
		c.shards[i].addTo(&t)
	}
	return t
}
