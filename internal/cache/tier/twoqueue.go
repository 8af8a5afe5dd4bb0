package tier

import (
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// recentShare is the part of the budget (one in so many) that entries asked for once may take when
// others need room.
const recentShare = 4

// sized is an entry of a list: it takes so many bytes of the budget.
type sized interface{ takes() int64 }

// twoQueue decides which entries stay within a budget of bytes: a 2Q cache (Johnson and Shasha,
// 1994). A new entry is recent; when it is asked for again, or comes back soon after it was
// evicted, it is frequent. Recent entries are evicted first as long as they take more than a
// quarter, so that a scan of cold files only drives out other cold files. Ghosts, the keys of
// evicted recent entries, tell which entries come back. It is not safe for concurrent use.
type twoQueue[K comparable, E sized] struct {
	budget    int64
	ghostCost func(K) int64 // bytes that a ghost takes
	left      func(E)       // is called with each entry that leaves the lists

	recent      *simplelru.LRU[K, E]
	frequent    *simplelru.LRU[K, E]
	ghosts      *simplelru.LRU[K, int64] // bytes that the entry took
	used        int64                    // by all in the lists
	recentUsed  int64
	reserved    int64
	lingering   int64 // bytes of evicted entries that are still read
	ghostsStood int64 // bytes that the entries behind the ghosts took
	evicted     uint64
}

func newTwoQueue[K comparable, E sized](budget int64, ghostCost func(K) int64, left func(E)) twoQueue[K, E] {
	return twoQueue[K, E]{
		budget: budget, ghostCost: ghostCost, left: left,
		recent: newLRU[K, E](), frequent: newLRU[K, E](), ghosts: newLRU[K, int64](),
	}
}

// newLRU returns a list without a limit of its own: its user counts the bytes.
func newLRU[K comparable, V any]() *simplelru.LRU[K, V] {
	l, err := simplelru.NewLRU[K, V](math.MaxInt, nil)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return l
}

// total is the bytes that count in the budget; what is reserved evicts half of it at most.
func (q *twoQueue[K, E]) total() int64 { return q.used + min(q.reserved, q.budget/2) + q.lingering }

// find finds an entry in either list.
func (q *twoQueue[K, E]) find(key K) (E, bool) {
	if e, ok := q.frequent.Peek(key); ok {
		return e, true
	}
	return q.recent.Peek(key)
}

// touch counts a use of an entry that is in a list: it makes a recent entry a frequent one.
func (q *twoQueue[K, E]) touch(key K, e E) {
	if _, ok := q.frequent.Get(key); ok {
		return
	}
	q.recent.Remove(key)
	q.recentUsed -= e.takes()
	q.frequent.Add(key, e)
}

// put adds an entry in the place of one with the same key; hot makes it frequent at once. It is
// false when there is no room.
func (q *twoQueue[K, E]) put(key K, e E, hot bool) bool {
	size := e.takes()
	q.remove(key)
	if size > q.budget {
		return false
	}
	_, back := q.ghosts.Peek(key)
	if back {
		q.forget(key)
	}
	q.shrink(q.budget - size) // before it is there, so that it is not its own victim
	if q.lingering > 0 && q.total() > q.budget-size {
		return false // slow readers have the room
	}
	q.used += size
	if back || hot {
		q.frequent.Add(key, e)
	} else {
		q.recent.Add(key, e)
		q.recentUsed += size
	}
	return true
}

// shrink evicts until no more than limit bytes are taken.
func (q *twoQueue[K, E]) shrink(limit int64) {
	for q.total() > limit {
		switch {
		case q.recent.Len() > 0 && (q.recentUsed > q.budget/recentShare || q.frequent.Len() == 0):
			q.evictRecent()
		case q.frequent.Len() > 0:
			_, e, _ := q.frequent.RemoveOldest()
			q.gone(e)
			q.evicted++
		case q.ghosts.Len() > 0:
			key, _, _ := q.ghosts.GetOldest()
			q.forget(key)
		default:
			return
		}
	}
}

// evictRecent leaves a ghost of the entry, and forgets ghosts that are older than a budget's worth
// of entries.
func (q *twoQueue[K, E]) evictRecent() {
	key, e, _ := q.recent.RemoveOldest()
	q.gone(e)
	q.recentUsed -= e.takes()
	q.evicted++
	q.ghosts.Add(key, e.takes())
	q.ghostsStood += e.takes()
	q.used += q.ghostCost(key)
	for q.ghostsStood > q.budget {
		oldest, _, _ := q.ghosts.GetOldest()
		q.forget(oldest)
	}
}

// gone counts an entry out that is in no list any more.
func (q *twoQueue[K, E]) gone(e E) {
	q.used -= e.takes()
	q.left(e)
}

// forget drops a ghost.
func (q *twoQueue[K, E]) forget(key K) {
	stood, ok := q.ghosts.Peek(key)
	if !ok {
		return
	}
	q.ghosts.Remove(key)
	q.ghostsStood -= stood
	q.used -= q.ghostCost(key)
}

// remove drops an entry.
func (q *twoQueue[K, E]) remove(key K) bool {
	if e, ok := q.frequent.Peek(key); ok {
		q.frequent.Remove(key)
		q.gone(e)
		return true
	}
	if e, ok := q.recent.Peek(key); ok {
		q.recent.Remove(key)
		q.gone(e)
		q.recentUsed -= e.takes()
		return true
	}
	return false
}
