package tier

import (
	"container/list"
	"sync/atomic"
)

// diskEntry is what is known of a segment on disk. Its fields are guarded by Disk.mu.
type diskEntry struct {
	key    Key
	bytes  int64                  // that it takes of the budget
	file   *openFile              // while it is used
	checks atomic.Pointer[checks] // of the file that was opened last; nil before; read without the lock
	list   *list.List             // the one that it is in; nil: its file was found at start, and not looked at
	use    *list.Element          // its place there
}

// index lists the segments on disk by file, and those of known size by use. Those that the process
// found there at start are in old, and go first; those that it has used or written are in live.
type index struct {
	all       files[diskEntry]
	live, old list.List // of *entry, the one that was used last at the front
	used      int64     // bytes of those in the lists
	// unlinking are segments that are no entries any more, and whose files are to be removed: that
	// is about to happen, or has failed.
	unlinking files[Key]
}

func newIndex() index { return index{all: make(files[diskEntry]), unlinking: make(files[Key])} }

// len is the number of the entries whose size is known.
func (x *index) len() int { return x.live.Len() + x.old.Len() }

// get finds an entry, or gives nil; touch counts as use.
func (x *index) get(key Key, touch bool) *diskEntry {
	e := x.all.get(key)
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

// add puts an entry in the place of the one that is there.
func (x *index) add(e *diskEntry) {
	x.remove(e.key)
	x.unlinking.remove(e.key)
	x.all.set(e.key, e)
	x.size(e, e.bytes, &x.live)
}

// addName adds an entry for a file that was found at start, unless there is something newer.
func (x *index) addName(key Key) *diskEntry {
	if x.all.get(key) != nil || x.unlinking.get(key) != nil {
		return nil
	}
	e := &diskEntry{key: key}
	x.all.set(key, e)
	return e
}

// size puts an entry of addName into a list, unless it is in one.
func (x *index) size(e *diskEntry, bytes int64, l *list.List) {
	if e.list == nil {
		e.bytes = bytes
		x.used += bytes
		x.push(e, l)
	}
}

func (x *index) remove(key Key) {
	if e := x.all.get(key); e != nil {
		x.all.remove(key)
		if e.list != nil {
			e.list.Remove(e.use)
			x.used -= e.bytes
		}
	}
}

// startUnlink removes a segment whose file is to be removed.
func (x *index) startUnlink(key Key) {
	x.remove(key)
	x.unlinking.set(key, &key)
}

// startUnlinkFile does that for all segments of a file, and adds their keys to those whose files
// are to be removed.
func (x *index) startUnlinkFile(file string, keys []Key) []Key {
	x.all.each(file, func(key Key, _ *diskEntry) { x.startUnlink(key) })
	x.unlinking.each(file, func(key Key, _ *Key) { keys = append(keys, key) })
	return keys
}

// oldest is the entry that was not used for the longest time, or nil.
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
