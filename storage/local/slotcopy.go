package local

import (
	"container/list"
	"sync"
	"sync/atomic"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/content/arena"
	"fastdfs-gateway/internal/fdfs"
)

// slotArena has the copies of all FileCaches, so that a reload needs no second arena.
var slotArena = sync.OnceValues(func() (*arena.Arena, error) { return arena.New("slots") })

// NoSlotCopies returns the reason why this system cannot keep copies of trunk slots in memory, or
// nil. Slots are then read and checked for each response. The first call is at the start of the
// process, before it drops its privileges.
func NoSlotCopies() error {
	_, err := slotArena()
	return err
}

// slotCopy is the checked content of a trunk slot in memory that nothing writes to. It belongs to a
// File, and is freed with it.
type slotCopy struct {
	arena.Extent

	owner  *slotCopies
	broken bool          // a write failed
	used   atomic.Bool   // since the last search for a victim
	place  *list.Element // in owner.list; guarded by owner.mu
}

// write adds a part of the content; c may be nil.
func (c *slotCopy) write(p []byte, off int64) {
	if c == nil || c.broken {
		return
	}
	_, err := c.WriteAt(p, off)
	c.broken = err != nil // no memory: the File gets no copy
}

// at is File.At for the copy.
func (c *slotCopy) at(offset, limit int64) content.Chunk {
	if !c.used.Load() {
		c.used.Store(true)
	}
	return content.Chunk{File: c.File(), Resident: true, Offset: c.Offset + offset, Length: limit}
}

// free releases the memory; c may be nil.
func (c *slotCopy) free() {
	if c == nil {
		return
	}
	c.Free()
	o := c.owner
	o.bytes.Add(-arena.Cost(c.Length))
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.place != nil {
		o.list.Remove(c.place)
	}
}

// slotCopies are the copies of a FileCache. The bound of their memory includes copies of removed
// files that responses still send.
type slotCopies struct {
	arena  *arena.Arena // nil: there are no copies
	budget int64
	bytes  atomic.Int64       // reserved
	drop   func(f *File) bool // removes a file from the cache; false if it is not there

	mu   sync.Mutex // guards list, and slotCopy.place
	list list.List  // of *File with a copy, the next victim last
}

const (
	// largestCopy is the divisor of the budget that bounds one copy: a quarter.
	largestCopy = 4
	// admitEach is the number of requests for a slot after each of which other copies may be
	// evicted for it. So a set of slots that is larger than the memory does not replace all copies
	// again and again.
	admitEach = 8
	// mostSpared bounds the copies that one search for room finds in use.
	mostSpared = 64
)

// newSlotCopies returns the copies of a FileCache.
func newSlotCopies(budget int64, drop func(f *File) bool) *slotCopies {
	a, err := slotArena()
	if err != nil || budget <= 0 {
		a = nil // NoSlotCopies returns the error
	}
	return &slotCopies{arena: a, budget: budget, drop: drop}
}

// reserve returns an empty copy for size bytes, or nil if there is no room. With evict it may evict
// other copies.
func (o *slotCopies) reserve(size int64, evict bool) *slotCopy {
	cost := arena.Cost(size)
	if o.arena == nil || cost > o.budget/largestCopy {
		return nil
	}
	for spared := 0; o.bytes.Add(cost) > o.budget; {
		o.bytes.Add(-cost)
		if !evict || spared == mostSpared {
			return nil
		}
		switch evicted, ok := o.evictOne(); {
		case !ok:
			return nil
		case !evicted:
			spared++
		}
	}
	e, err := o.arena.Reserve(size)
	if err != nil { // the settings of the system have changed
		o.bytes.Add(-cost)
		return nil
	}
	return &slotCopy{Extent: e, owner: o}
}

// evictOne removes the file of the oldest copy from the cache. It spares a copy that was used since
// the last search, or that a response is sending, whether its file is still in the cache or not. ok
// is false if there is no copy.
func (o *slotCopies) evictOne() (evicted, ok bool) {
	o.mu.Lock()
	last := o.list.Back()
	if last == nil {
		o.mu.Unlock()
		return false, false
	}
	f := last.Value.(*File)
	o.list.MoveToFront(last)
	spared := f.copied.Load().used.Swap(false) || f.refs.Load() > 1
	o.mu.Unlock()
	return !spared && o.drop(f), true
}

// publish makes c the copy of f, unless c is incomplete. The caller has a reference to f.
func (o *slotCopies) publish(f *File, c *slotCopy) {
	if c == nil {
		return
	}
	if c.broken {
		c.free()
		return
	}
	f.copied.Store(c)
	o.mu.Lock()
	defer o.mu.Unlock()
	c.place = o.list.PushFront(f)
}

// stats returns the number of copies and their bytes.
func (o *slotCopies) stats() (copies int, bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.list.Len(), o.bytes.Load()
}

// copySlot copies the content of f into memory, if f is a trunk slot that is too large for a body
// and has no copy. Only one of several concurrent requests reads the content.
func (c *FileCache) copySlot(f *File) {
	if f.content.Kind != fdfs.KindTrunk || f.body != nil || f.size <= c.o.MaxBody || f.copied.Load() != nil ||
		f.wrong.Load() != nil || !f.copying.CompareAndSwap(false, true) {
		return
	}
	defer f.copying.Store(false)
	if f.copied.Load() != nil {
		return
	}
	f.uses++
	copied := c.copies.reserve(f.size, f.uses%admitEach == 0)
	if copied == nil {
		return
	}
	if err := f.slot.Copy(copied.write); err != nil { // At returns the error
		copied.free()
		return
	}
	c.copies.publish(f, copied)
}
