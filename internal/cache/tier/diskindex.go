package tier

import (
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// entry is what is known of a segment on disk. Its fields are guarded by Disk.mu.
type entry struct {
	bytes  int64                  // that it takes of the budget
	file   *openFile              // while it is used
	checks atomic.Pointer[checks] // of the file that was opened last; nil before; read without the lock
}

func (e *entry) takes() int64 { return e.bytes }

// index lists what is on disk by use. What the process found there at start is in old, and goes
// first; what it has used or written is in live.
type index[K comparable, E sized] struct {
	live, old *simplelru.LRU[K, E]
	used      int64
}

func newIndex[K comparable, E sized]() index[K, E] {
	return index[K, E]{live: newLRU[K, E](), old: newLRU[K, E]()}
}

func (x *index[K, E]) len() int { return x.live.Len() + x.old.Len() }

// get finds an entry, or gives the zero one; touch counts as use.
func (x *index[K, E]) get(key K, touch bool) E {
	if e, ok := x.live.Peek(key); ok {
		if touch {
			x.live.Get(key)
		}
		return e
	}
	e, ok := x.old.Peek(key)
	if ok && touch {
		x.old.Remove(key)
		x.live.Add(key, e)
	}
	return e
}

// add puts an entry in the place of the one that is there.
func (x *index[K, E]) add(key K, e E) {
	x.remove(key)
	x.live.Add(key, e)
	x.used += e.takes()
}

// addOld adds what was found at start, in the order of its last use, unless there is something
// newer.
func (x *index[K, E]) addOld(key K, e E) {
	if !x.has(key) {
		x.old.Add(key, e)
		x.used += e.takes()
	}
}

func (x *index[K, E]) remove(key K) {
	if !x.has(key) {
		return
	}
	x.used -= x.get(key, false).takes()
	x.live.Remove(key)
	x.old.Remove(key)
}

// oldest takes out the entry that was not used for the longest time.
func (x *index[K, E]) oldest() (K, bool) {
	key, _, ok := x.old.GetOldest()
	if !ok {
		key, _, ok = x.live.GetOldest()
	}
	if ok {
		x.remove(key)
	}
	return key, ok
}

// has tells whether there is an entry.
func (x *index[K, E]) has(key K) bool { return x.live.Contains(key) || x.old.Contains(key) }

// keys lists what matches.
func (x *index[K, E]) keys(matches func(K) bool) []K {
	var keys []K
	for _, list := range []*simplelru.LRU[K, E]{x.old, x.live} {
		for _, key := range list.Keys() {
			if matches(key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
