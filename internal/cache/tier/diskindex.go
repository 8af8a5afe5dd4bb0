package tier

import (
	"slices"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// entry is what is known of a segment on disk. Its fields are guarded by Disk.mu.
type entry struct {
	bytes  int64                  // that it takes of the budget
	file   *openFile              // while it is used
	checks atomic.Pointer[checks] // of the file that was opened last; nil before; read without the lock
}

// index lists what is on disk by use. What the process found there at start is in old, and goes
// first; what it has used or written is in live.
type index struct {
	live, old *simplelru.LRU[Key, *entry]
	used      int64
}

func newIndex() index { return index{live: newLRU[Key, *entry](), old: newLRU[Key, *entry]()} }

func (x *index) len() int { return x.live.Len() + x.old.Len() }

// get finds an entry, or gives nil; touch counts as use.
func (x *index) get(key Key, touch bool) *entry {
	e, ok := x.live.Peek(key)
	if !ok {
		e, ok = x.old.Peek(key)
	}
	if ok && touch {
		x.old.Remove(key)
		x.live.Add(key, e)
	}
	return e
}

// add puts an entry in the place of the one that is there.
func (x *index) add(key Key, e *entry) {
	x.remove(key)
	x.live.Add(key, e)
	x.used += e.bytes
}

// addOld adds what was found at start, in the order of its last use, unless there is something
// newer.
func (x *index) addOld(key Key, e *entry) {
	if x.get(key, false) == nil {
		x.old.Add(key, e)
		x.used += e.bytes
	}
}

func (x *index) remove(key Key) {
	if e := x.get(key, false); e != nil {
		x.used -= e.bytes
		x.live.Remove(key)
		x.old.Remove(key)
	}
}

// oldest takes out the entry that was not used for the longest time.
func (x *index) oldest() (Key, bool) {
	key, _, ok := x.old.GetOldest()
	if !ok {
		key, _, ok = x.live.GetOldest()
	}
	if ok {
		x.remove(key)
	}
	return key, ok
}

// keys lists what matches.
func (x *index) keys(m Match) []Key {
	return slices.DeleteFunc(append(x.old.Keys(), x.live.Keys()...), func(key Key) bool { return !m.Matches(key.File) })
}
