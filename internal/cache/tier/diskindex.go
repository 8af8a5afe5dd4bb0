package tier

import (
	"container/list"
	"sync/atomic"
)

// diskEntry is the entry of a segment on disk. Disk.mu guards its fields.
type diskEntry struct {
	key    Key
	bytes  int64                  // in the budget
	file   *openFile              // nil: it has no users
	checks atomic.Pointer[checks] // of the last opened file; nil: none yet; read without the lock
	list   *list.List             // of index; nil: the file was found at start, and its size is unknown
	use    *list.Element          // element of list
}

// index lists the segments on disk by file, and those of known size also by use. The list old has
// the segments that were found at start, which are evicted first. The list live has the segments
// that this process has used or written.
type index struct {
	all       Files[diskEntry]
	live, old list.List // of *diskEntry, the last used one at the front
	used      int64     // bytes of the entries in the lists
	unsized   int       // entries in no list
	unlinking Files[removal]
	queue     []Key // whose files are to be removed, in this order; those that are not in unlinking need not
}

// removal is the removal of the file of a segment without an entry. Disk.mu guards it.
type removal struct {
	queued bool // it is in index.queue; otherwise it is running, or has failed
	purged bool // a purge has selected the segment: Sync waits for the removal
}

func newIndex() index { return index{all: make(Files[diskEntry]), unlinking: make(Files[removal])} }

// len returns the number of entries of known size.
func (x *index) len() int { return x.live.Len() + x.old.Len() }

// get returns an entry, or nil. With touch it counts as use.
func (x *index) get(key Key, touch bool) *diskEntry {
	e := x.all.Get(key)
	if e == nil || !touch {
		return e
	}
	switch e.list {
	case &x.live:
		x.live.MoveToFront(e.use)
	case &x.old:
		x.old.Remove(e.use)
		x.push(e, &x.live)
	}
	return e
}

// push puts an entry at the front of a list.
func (x *index) push(e *diskEntry, l *list.List) { e.list, e.use = l, l.PushFront(e) }

// addEntry puts an entry in the place of one with the same key.
func (x *index) addEntry(e *diskEntry) {
	x.remove(e.key)
	x.unlinking.Remove(e.key)
	x.all.Set(e.key, e)
	x.unsized++
	x.size(e, e.bytes, &x.live)
}

// addName adds an entry for a file that was found at start. It returns nil if the key has a newer
// entry, or its file is being removed.
func (x *index) addName(key Key) *diskEntry {
	if x.all.Get(key) != nil || x.unlinking.Get(key) != nil {
		return nil
	}
	e := &diskEntry{key: key}
	x.all.Set(key, e)
	x.unsized++
	return e
}

// size puts an entry of addName into a list, unless it is in one already.
func (x *index) size(e *diskEntry, bytes int64, l *list.List) {
	if e.list == nil {
		e.bytes = bytes
		x.unsized--
		x.used += bytes
		x.push(e, l)
	}
}

func (x *index) remove(key Key) {
	if e := x.all.Get(key); e != nil {
		x.all.Remove(key)
		if e.list == nil {
			x.unsized--
			return
		}
		e.list.Remove(e.use)
		x.used -= e.bytes
	}
}

// startUnlink removes the entry of a segment, and queues the removal of its file.
func (x *index) startUnlink(key Key) *removal {
	x.remove(key)
	r := x.unlinking.Get(key)
	if r == nil {
		r = &removal{}
		x.unlinking.Set(key, r)
	}
	x.enqueue(key, r)
	return r
}

// enqueue queues a removal, unless it is queued already.
func (x *index) enqueue(key Key, r *removal) {
	if !r.queued {
		r.queued = true
		x.queue = append(x.queue, key)
	}
}

// dequeue returns the next segment whose file is to be removed, and its removal.
func (x *index) dequeue() (key Key, r *removal) {
	for len(x.queue) > 0 {
		key, x.queue = x.queue[0], x.queue[1:]
		if r = x.unlinking.Get(key); r != nil && r.queued {
			r.queued = false
			return key, r
		}
	}
	x.queue = nil
	return key, nil
}

// endUnlink ends a removal, unless the key has another removal since: that of a newer file.
func (x *index) endUnlink(key Key, r *removal) {
	if x.unlinking.Get(key) == r {
		x.unlinking.Remove(key)
	}
}

// oldest returns the least recently used entry, or nil.
func (x *index) oldest() *diskEntry {
	at := x.old.Back()
	if at == nil {
		at = x.live.Back()
	}
	if at == nil {
		return nil
	}
	return at.Value.(*diskEntry)
}
