package tier

import (
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// entry is what is known of a segment on disk. Its fields are guarded by Disk.mu.
type entry struct {
	bytes   int64         // that it takes of the budget
	file    *openFile     // while somebody uses it
	inode   uint64        // of the file that checked is about
	checked atomic.Uint32 // bit i: chunk i is what was written; set without the lock
}

// index lists what is on disk by use. What the process found there at start is in old, and goes first; what it has used or
// written is in live.
type index struct {
	live, old *simplelru.LRU[Key, *entry]
	used      int64
}

func newIndex() index { return index{live: newLRU[*entry](), old: newLRU[*entry]()} }

func (x *index) len() int { return x.live.Len() + x.old.Len() }

// get finds an entry; touch counts as use.
func (x *index) get(key Key, touch bool) *entry {
	if e, ok := x.live.Peek(key); ok {
		if touch {
			x.live.Get(key)
		}
		return e
	}
	e, ok := x.old.Peek(key)
	if !ok {
		return nil
	}
	if touch {
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

// addOld adds what was found at start, in the order of its last use, unless there is something newer.
func (x *index) addOld(key Key, e *entry) {
	if x.get(key, false) == nil {
		x.old.Add(key, e)
		x.used += e.bytes
	}
}

func (x *index) remove(key Key) {
	e := x.get(key, false)
	if e == nil {
		return
	}
	x.live.Remove(key)
	x.old.Remove(key)
	x.used -= e.bytes
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
	var keys []Key
	for _, list := range []*simplelru.LRU[Key, *entry]{x.old, x.live} {
		for _, key := range list.Keys() {
			if m.Matches(key.File) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
