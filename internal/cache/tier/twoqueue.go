package tier

import "container/list"

// recentShare is the divisor of the budget for recent segments, while other segments need room.
const recentShare = 4

// lists decide which segments stay in a Memory. They are a 2Q cache (Johnson and Shasha, 1994). A
// new segment is recent. It becomes frequent when it is requested again, or comes back soon after
// it was evicted. Recent segments are evicted first as long as they take more than a quarter of the
// budget, so that a scan of cold files evicts only other cold files. Ghosts are the keys of evicted
// recent segments, by which a segment that comes back is recognized. Memory.mu guards all fields.
type lists struct {
	all           Files[memoryEntry]
	recent        list.List // of *memoryEntry, the last used one at the front; so are the next two
	frequent      list.List
	ghosts        list.List
	used          int64 // bytes of all lists
	recentUsed    int64
	ghostSegments int64 // bytes of the segments of the ghosts
}

// total returns the bytes that count in the budget. Reserved bytes count up to half of it.
func (m *Memory) total() int64 { return m.used + min(m.reserved, m.budget/2) + m.pinned }

// find returns a segment, or nil.
func (m *Memory) find(key Key) *memoryEntry {
	if k := m.all.Get(key); k != nil && k.list != &m.ghosts {
		return k
	}
	return nil
}

// isGhost reports whether a recent segment was evicted a short time ago.
func (m *Memory) isGhost(key Key) bool {
	k := m.all.Get(key)
	return k != nil && k.list == &m.ghosts
}

// push puts an entry at the front of a list.
func (k *memoryEntry) push(l *list.List) { k.list, k.use = l, l.PushFront(k) }

// oldest returns the least recently used entry of a list.
func oldest(l *list.List) *memoryEntry { return l.Back().Value.(*memoryEntry) }

// touch counts a use of a segment: a recent one becomes frequent.
func (m *Memory) touch(k *memoryEntry) {
	if k.list == &m.frequent {
		m.frequent.MoveToFront(k.use)
		return
	}
	m.recent.Remove(k.use)
	m.recentUsed -= k.cost
	k.push(&m.frequent)
}

// put adds a segment in the place of one with the same key. It returns false if the budget has no
// room for it.
func (m *Memory) put(k *memoryEntry) bool {
	back := m.isGhost(k.key)
	if k.cost > m.budget {
		if !back {
			m.remove(k.key)
		}
		return false
	}
	m.remove(k.key)
	m.shrink(m.budget - k.cost) // before the insertion, so that the segment does not evict itself
	if m.used+m.pinned > 0 && m.total() > m.budget-k.cost {
		return false // segments in use and reserved bytes take the rest
	}
	m.used += k.cost
	m.all.Set(k.key, k)
	if back || k.segment.Hot {
		k.push(&m.frequent)
	} else {
		k.push(&m.recent)
		m.recentUsed += k.cost
	}
	return true
}

// maxInUse bounds the segments with readers that one call of shrink skips. The next call begins
// behind them.
const maxInUse = 256

// shrink evicts until at most limit bytes are taken. It stops before that if readers use all
// frequent segments, or the maxInUse oldest ones, and no recent segment and no ghost is left.
func (m *Memory) shrink(limit int64) {
	for inUse := 0; m.total() > limit; {
		left := min(m.frequent.Len(), maxInUse) > inUse
		switch {
		case m.recent.Len() > 0 && (m.recentUsed > m.budget/recentShare || !left):
			m.evictRecent()
		case left:
			k := oldest(&m.frequent)
			if k.extent != nil && k.extent.isInUse() {
				m.frequent.MoveToFront(k.use)
				inUse++
				continue
			}
			m.removeEntry(k)
			m.evicted++
		case m.ghosts.Len() > 0:
			m.removeEntry(oldest(&m.ghosts))
		default:
			return
		}
	}
}

// evictRecent replaces the oldest recent segment by its ghost. It removes the oldest ghosts while
// the segments of all ghosts had more bytes than the budget.
func (m *Memory) evictRecent() {
	k := oldest(&m.recent)
	m.removeEntry(k)
	m.evicted++
	k.segment, k.extent = nil, nil
	k.push(&m.ghosts)
	m.all.Set(k.key, k)
	m.ghostSegments += k.cost
	m.used += ghostCost(k.key)
	for m.ghostSegments > m.budget {
		m.removeEntry(oldest(&m.ghosts))
	}
}

// remove removes a segment or its ghost; without one it does nothing.
func (m *Memory) remove(key Key) {
	if k := m.all.Get(key); k != nil {
		m.removeEntry(k)
	}
}

// removeEntry removes a segment or a ghost from its list and the index.
func (m *Memory) removeEntry(k *memoryEntry) {
	k.list.Remove(k.use)
	m.all.Remove(k.key)
	switch k.list {
	case &m.ghosts:
		m.ghostSegments -= k.cost
		m.used -= ghostCost(k.key)
		return
	case &m.recent:
		m.recentUsed -= k.cost
	}
	m.used -= k.cost
	m.unref(k)
}
