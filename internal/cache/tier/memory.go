package tier

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// What the bookkeeping of an entry takes, in bytes: the list element, the map's slot and the Segment; a test compares it with
// what the process really takes.
const (
	segmentCost = 240
	ghostCost   = 144
)

// recentShare is the part of the budget (one in so many) that segments asked for once may take when others need room.
const recentShare = 4

// Memory is a tier in the memory of the process, with a budget in bytes that includes keys and bookkeeping.
//
// It is a 2Q cache. A new segment is recent; when it is asked for again, or comes back soon after it was evicted, it is
// frequent. Recent segments are evicted first as long as they take more than a quarter, so that a scan of cold files only drives
// out other cold files. Ghosts, the keys of evicted recent segments, are how it knows what comes back.
type Memory struct {
	budget int64

	mu          sync.Mutex // guards what follows
	recent      *simplelru.LRU[Key, *Segment]
	frequent    *simplelru.LRU[Key, *Segment]
	ghosts      *simplelru.LRU[Key, int64] // what the segment took
	used        int64                      // all together
	recentUsed  int64
	reserved    int64
	ghostsStood int64 // what the segments behind the ghosts took
	evicted     uint64
}

var _ Tier = (*Memory)(nil)

// NewMemory returns a tier that takes budget bytes at most.
func NewMemory(budget int64) *Memory {
	return &Memory{budget: budget, recent: newLRU[*Segment](), frequent: newLRU[*Segment](), ghosts: newLRU[int64]()}
}

// newLRU returns a list without a limit of its own: what it may hold is counted in bytes by its user.
func newLRU[V any]() *simplelru.LRU[Key, V] {
	l, err := simplelru.NewLRU[Key, V](math.MaxInt, nil)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return l
}

// cost is what a segment takes.
func cost(s *Segment) int64 {
	n := int64(segmentCost + len(s.File) + 24*cap(s.Chunks))
	for _, c := range s.Chunks {
		n += int64(cap(c))
	}
	return n
}

// Get implements Tier.
func (m *Memory) Get(key Key, v Version, touch bool) (View, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.frequent.Peek(key)
	if !ok {
		s, ok = m.recent.Peek(key)
	}
	switch {
	case !ok:
		return View{}, false
	case s.Version != v:
		m.remove(key)
		return View{}, false
	case touch:
		m.touch(s)
	}
	return View{segment: s}, true
}

// touch counts a use: it makes a recent segment a frequent one.
func (m *Memory) touch(s *Segment) {
	if _, ok := m.frequent.Get(s.Key); ok {
		return
	}
	m.recent.Remove(s.Key)
	m.recentUsed -= cost(s)
	m.frequent.Add(s.Key, s)
}

// Holds implements Tier.
func (m *Memory) Holds(key Key) (Version, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.frequent.Peek(key)
	if !ok {
		s, ok = m.recent.Peek(key)
	}
	if !ok {
		return Version{}, false
	}
	return s.Version, true
}

// Put implements Tier.
func (m *Memory) Put(s *Segment) bool {
	size := cost(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(s.Key)
	if size > m.budget {
		return false
	}
	_, back := m.ghosts.Peek(s.Key)
	if back {
		m.forget(s.Key)
	}
	m.shrink(m.budget - size) // before it is there, so that it is not its own victim
	m.used += size
	if back || s.Hot {
		m.frequent.Add(s.Key, s)
	} else {
		m.recent.Add(s.Key, s)
		m.recentUsed += size
	}
	return true
}

// wanted tells whether a segment was evicted not long ago.
func (m *Memory) wanted(key Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ghosts.Contains(key)
}

// Reserve makes room for bytes that are being fetched and will be Put, or forgotten; a negative number gives it back. What is
// reserved counts as used.
func (m *Memory) Reserve(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reserved += bytes
	m.shrink(m.budget)
}

// shrink evicts until no more than limit bytes are taken.
func (m *Memory) shrink(limit int64) {
	for m.used+m.reserved > limit {
		switch {
		case m.recent.Len() > 0 && (m.recentUsed > m.budget/recentShare || m.frequent.Len() == 0):
			m.evictRecent()
		case m.frequent.Len() > 0:
			_, s, _ := m.frequent.RemoveOldest()
			m.used -= cost(s)
			m.evicted++
		case m.ghosts.Len() > 0:
			key, _, _ := m.ghosts.GetOldest()
			m.forget(key)
		default:
			return
		}
	}
}

// evictRecent leaves a ghost of the segment, and forgets ghosts that are older than a budget's worth of segments.
func (m *Memory) evictRecent() {
	key, s, _ := m.recent.RemoveOldest()
	size := cost(s)
	m.used -= size
	m.recentUsed -= size
	m.evicted++
	m.ghosts.Add(key, size)
	m.ghostsStood += size
	m.used += ghostCost + int64(len(key.File))
	for m.ghostsStood > m.budget {
		oldest, _, _ := m.ghosts.GetOldest()
		m.forget(oldest)
	}
}

// forget drops a ghost.
func (m *Memory) forget(key Key) {
	stood, ok := m.ghosts.Peek(key)
	if !ok {
		return
	}
	m.ghosts.Remove(key)
	m.ghostsStood -= stood
	m.used -= ghostCost + int64(len(key.File))
}

// remove drops a segment.
func (m *Memory) remove(key Key) bool {
	if s, ok := m.frequent.Peek(key); ok {
		m.frequent.Remove(key)
		m.used -= cost(s)
		return true
	}
	if s, ok := m.recent.Peek(key); ok {
		m.recent.Remove(key)
		m.used -= cost(s)
		m.recentUsed -= cost(s)
		return true
	}
	return false
}

// Drop implements Tier.
func (m *Memory) Drop(match Match) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, list := range []*simplelru.LRU[Key, *Segment]{m.recent, m.frequent} {
		for _, key := range list.Keys() {
			if match.Matches(key.File) && m.remove(key) {
				n++
			}
		}
	}
	for _, key := range m.ghosts.Keys() {
		if match.Matches(key.File) {
			m.forget(key)
		}
	}
	return n
}

// Stats are figures of a tier.
type Stats struct {
	Entries int
	Bytes   int64  // that are taken, of the budget
	Evicted uint64 // segments, for want of room
	Failed  uint64 // Disk: times that the disk failed and was left alone for a while
	Skipped uint64 // Disk: segments that were not stored, because it failed or was too slow
	Damaged uint64 // Disk: segments that were not what was written
	Off     bool   // Disk: it is being left alone
}

// Stats gives the figures.
func (m *Memory) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Stats{Entries: m.recent.Len() + m.frequent.Len(), Bytes: m.used + m.reserved, Evicted: m.evicted}
}
