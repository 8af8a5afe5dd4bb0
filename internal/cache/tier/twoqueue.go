package tier

import "container/list"

// recentShare is the divisor of the budget for segments that were requested once, while others need
// room.
const recentShare = 4

// lists decide which segments stay in a Memory: a 2Q cache (Johnson and Shasha, 1994). A new
// segment is recent; when it is asked for again, or comes back soon after it was evicted, it is
// frequent. Recent ones are evicted first as long as they take more than a quarter, so that a scan
// of cold files only drives out other cold files. Ghosts, the keys of evicted recent segments, tell
// which segments come back. Memory.mu guards all of it.
type lists struct {
	all           files[memoryEntry]
	recent        list.List // of *memoryEntry, the one that was used last at the front; so are the next two
	frequent      list.List
	ghosts        list.List
	used          int64 // by all lists
	recentUsed    int64
	ghostSegments int64 // bytes of the segments of the ghosts
}

// total returns the bytes that count in the budget. Reserved bytes evict half of it at most.
func (m *Memory) total() int64 { return m.used + min(m.reserved, m.budget/2) + m.pinned }

// find returns a segment, or nil.
func (m *Memory) find(key Key) *memoryEntry {
	if k := m.all.get(key); k != nil && k.list != &m.ghosts {
		return k
	}
	return nil
}

// isGhost reports whether a segment was evicted not long ago.
func (m *Memory) isGhost(key Key) bool {
	k := m.all.get(key)
	return k != nil && k.list == &m.ghosts
}

// push puts an entry at the front of a list.
func (k *memoryEntry) push(l *list.List) { k.list, k.use = l, l.PushFront(k) }

// oldest is the entry of a list that was not used for the longest time.
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

// put adds a segment in the place of one with the same key. It is false if there is no room.
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
		return false // slow readers use the rest
	}
	m.used += k.cost
	m.all.set(k.key, k)
	if back || k.segment.Hot {
		k.push(&m.frequent)
	} else {
		k.push(&m.recent)
		m.recentUsed += k.cost
	}
	return true
}

// maxInUse bounds the segments with readers that one shrink passes over. The next one begins behind
// them.
const maxInUse = 256

// shrink evicts until at most limit bytes are taken, or readers use all that is left to evict.
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

// evictRecent leaves a ghost of the segment, and removes ghosts that are older than a budget's
// worth of segments.
func (m *Memory) evictRecent() {
	k := oldest(&m.recent)
	m.removeEntry(k)
	m.evicted++
	k.segment, k.extent = nil, nil
	k.push(&m.ghosts)
	m.all.set(k.key, k)
	m.ghostSegments += k.cost
	m.used += ghostCost(k.key)
	for m.ghostSegments > m.budget {
		m.removeEntry(oldest(&m.ghosts))
	}
}

// remove removes a segment or its ghost, if there is one.
func (m *Memory) remove(key Key) {
	if k := m.all.get(key); k != nil {
		m.removeEntry(k)
	}
}

// removeEntry removes a segment or a ghost from its list and the index.
func (m *Memory) removeEntry(k *memoryEntry) {
	k.list.Remove(k.use)
	m.all.remove(k.key)
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
