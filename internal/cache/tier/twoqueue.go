package tier

import (
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// recentShare is the part of the budget (one in so many) that segments asked for once may take when
// others need room.
const recentShare = 4

// lists decide which segments stay in a Memory: a 2Q cache (Johnson and Shasha, 1994). A new
// segment is recent; when it is asked for again, or comes back soon after it was evicted, it is
// frequent. Recent ones are evicted first as long as they take more than a quarter, so that a scan
// of cold files only drives out other cold files. Ghosts, the keys of evicted recent segments, tell
// which segments come back. Memory.mu guards all of it.
type lists struct {
	recent      *simplelru.LRU[Key, *kept]
	frequent    *simplelru.LRU[Key, *kept]
	ghosts      *simplelru.LRU[Key, int64] // bytes that the segment took
	used        int64                      // by all in the lists
	recentUsed  int64
	ghostsStood int64 // bytes that the segments behind the ghosts took
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
func (m *Memory) total() int64 { return m.used + min(m.reserved, m.budget/2) + m.lingering }

// find finds a segment in either list.
func (m *Memory) find(key Key) (*kept, bool) {
	if k, ok := m.frequent.Peek(key); ok {
		return k, true
	}
	return m.recent.Peek(key)
}

// touch counts a use of a segment that is in a list: it makes a recent one a frequent one.
func (m *Memory) touch(k *kept) {
	if _, ok := m.frequent.Get(k.Key); ok {
		return
	}
	m.recent.Remove(k.Key)
	m.recentUsed -= k.cost
	m.frequent.Add(k.Key, k)
}

// put adds a segment in the place of one with the same key. It is false when there is no room.
func (m *Memory) put(k *kept) bool {
	m.remove(k.Key)
	if k.cost > m.budget {
		return false
	}
	back := m.ghosts.Contains(k.Key)
	m.forget(k.Key)
	m.shrink(m.budget - k.cost) // before it is there, so that it is not its own victim
	if m.lingering > 0 && m.total() > m.budget-k.cost {
		return false // slow readers have the room
	}
	m.used += k.cost
	if back || k.Hot {
		m.frequent.Add(k.Key, k)
	} else {
		m.recent.Add(k.Key, k)
		m.recentUsed += k.cost
	}
	return true
}

// shrink evicts until no more than limit bytes are taken.
func (m *Memory) shrink(limit int64) {
	for m.total() > limit {
		switch {
		case m.recent.Len() > 0 && (m.recentUsed > m.budget/recentShare || m.frequent.Len() == 0):
			m.evictRecent()
		case m.frequent.Len() > 0:
			key, _, _ := m.frequent.GetOldest()
			m.remove(key)
			m.evicted++
		case m.ghosts.Len() > 0:
			key, _, _ := m.ghosts.GetOldest()
			m.forget(key)
		default:
			return
		}
	}
}

// evictRecent leaves a ghost of the segment, and forgets ghosts that are older than a budget's
// worth of segments.
func (m *Memory) evictRecent() {
	key, k, _ := m.recent.GetOldest()
	m.remove(key)
	m.evicted++
	m.ghosts.Add(key, k.cost)
	m.ghostsStood += k.cost
	m.used += ghostCost(key)
	for m.ghostsStood > m.budget {
		oldest, _, _ := m.ghosts.GetOldest()
		m.forget(oldest)
	}
}

// forget drops a ghost, if there is one.
func (m *Memory) forget(key Key) {
	stood, ok := m.ghosts.Peek(key)
	if !ok {
		return
	}
	m.ghosts.Remove(key)
	m.ghostsStood -= stood
	m.used -= ghostCost(key)
}

// remove drops a segment.
func (m *Memory) remove(key Key) bool {
	k, ok := m.find(key)
	if !ok {
		return false
	}
	if m.recent.Remove(key) {
		m.recentUsed -= k.cost
	}
	m.frequent.Remove(key)
	m.used -= k.cost
	m.letGo(k)
	return true
}
