package tier

import (
	"container/list"
	"sync"
	"sync/atomic"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/content/arena"
)

// Memory of an entry in bytes: list element, slot of the map, memoryEntry and Segment. A test
// compares these numbers with the memory of the process.
const (
	segmentCost = 288
	ghostBytes  = 176
)

// minExtent is the length of the smallest segment that moves to the arena, in bytes. Smaller ones
// are copied behind the head of the response, which is faster.
const minExtent = 16 << 10

// Memory is a tier in the memory of the process, with a budget in bytes that includes keys and
// bookkeeping.
//
// After UseSendfile, a segment that is requested again moves to an arena, unless it is small. The
// arena is shared memory of the process, not heap. A segment in the arena is not evicted while
// readers use it, since that would free nothing. A segment that is purged or replaced meanwhile is
// pinned: its extent counts in the budget until the last reader has released it. While readers use
// most of the budget no further segment moves, so that slow clients of many files leave room for
// others.
type Memory struct {
	arena *arena.Arena // nil: segments stay in the heap
	inUse atomic.Int64 // bytes of extents with readers

	mu sync.Mutex // guards the fields below
	lists
	budget   int64
	reserved int64
	pinned   int64 // bytes of removed segments with readers
	evicted  uint64
	moved    uint64
	toFree   []*extent // extents without users, which unlock frees
}

// memoryEntry is a segment in a list of a Memory, or its ghost. Memory.mu guards it.
type memoryEntry struct {
	key     Key
	segment *Segment      // without chunks if extent is set; nil: the entry is a ghost
	extent  *extent       // in the arena; nil before the move
	cost    int64         // bytes in the budget; for a ghost those that its segment had
	list    *list.List    // one of lists
	use     *list.Element // element of list
	moving  bool          // a reader moves it to the arena, or has failed to
}

// NewMemory returns a Memory with a budget in bytes.
func NewMemory(budget int64) *Memory {
	return &Memory{budget: budget, lists: lists{all: make(Files[memoryEntry])}}
}

// UseSendfile lets segments move to an arena, from which sendfile(2) sends them. It must be called
// before any other method. The error is the reason for which this system has no arena: then
// segments stay in the heap.
func (m *Memory) UseSendfile() (err error) {
	if m.arena, err = arena.New("segments"); err != nil {
		m.arena = nil
	}
	return err
}

// headCost returns the memory of a segment without its bytes.
func headCost(key Key) int64 { return int64(segmentCost + len(key.File)) }

// ghostCost returns the memory of a ghost.
func ghostCost(key Key) int64 { return int64(ghostBytes + len(key.File)) }

// newMemoryEntry returns the entry of a segment in the heap.
func newMemoryEntry(s *Segment) *memoryEntry {
	cost := headCost(s.Key) + int64(24*cap(s.Chunks))
	for _, c := range s.Chunks {
		cost += int64(cap(c))
	}
	return &memoryEntry{key: s.Key, segment: s, cost: cost}
}

// unlock unlocks mu, and then frees the extents in toFree without mu, since that takes some time.
func (m *Memory) unlock() {
	freed := m.toFree
	m.toFree = nil
	m.mu.Unlock()
	for _, p := range freed {
		p.Free()
	}
}

// unpin removes an extent from pinned that its last user has released.
func (m *Memory) unpin(p *extent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.pinned {
		m.pinned -= arena.Cost(p.Length)
	}
}

// pin adds an extent to pinned that is in no list and has users. mu is held.
func (m *Memory) pin(p *extent) {
	p.pinned = true
	m.pinned += arena.Cost(p.Length)
}

// Get returns a view of the segment if it is of version v; one of another version is removed.
func (m *Memory) Get(key Key, v Version, touch bool) (View, bool) { return m.get(key, v, touch, touch) }

// GetInPlace is Get with touch for a reader that copies the bytes: the segment does not move to the
// arena.
func (m *Memory) GetInPlace(key Key, v Version) (View, bool) { return m.get(key, v, true, false) }

func (m *Memory) get(key Key, v Version, touch, moves bool) (View, bool) {
	m.mu.Lock()
	k := m.find(key)
	switch {
	case k == nil:
		m.mu.Unlock()
		return View{}, false
	case k.segment.Version != v:
		m.remove(key)
		m.unlock()
		return View{}, false
	case touch:
		m.touch(k)
	}
	if k.extent != nil {
		defer m.mu.Unlock()
		return View{extent: k.extent.use()}, true
	}
	segment := k.segment
	moves = moves && m.movesLocked(k)
	m.mu.Unlock()
	if moves {
		if p := m.move(k, segment); p != nil {
			return View{extent: p}, true
		}
	}
	return View{segment: segment}, true
}

// movesLocked reports whether the caller must move a segment to the arena. mu is held.
func (m *Memory) movesLocked(k *memoryEntry) bool {
	length := k.segment.Length()
	if k.moving || m.arena == nil || length < minExtent ||
		m.inUse.Load()+arena.Cost(length) > m.budget-m.budget/recentShare {
		return false
	}
	k.moving = true
	return true
}

// move copies a segment to the arena, and returns its extent with the caller as a user, or nil if
// the arena has no memory for it.
func (m *Memory) move(k *memoryEntry, s *Segment) *extent {
	p, err := m.newExtent(s.Chunks, s.Length())
	if err != nil {
		return nil // moving stays set, so the move is not tried again
	}
	m.mu.Lock()
	defer m.unlock()
	m.moved += uint64(p.Length)
	if m.find(k.key) != k {
		m.pin(p) // evicted or purged meanwhile: the caller is the only user
		return p
	}
	p.users.Add(listed)
	k.segment, k.extent = &Segment{Key: s.Key, Version: s.Version}, p
	m.used -= k.cost
	k.cost = headCost(s.Key) + arena.Cost(p.Length)
	m.used += k.cost
	m.shrink(m.budget) // the last page of the extent may exceed it
	return p
}

// Holds returns the version of a stored segment.
func (m *Memory) Holds(key Key) (Version, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.find(key)
	if k == nil {
		return Version{}, false
	}
	return k.segment.Version, true
}

// Put stores a segment. It returns false if the budget has no room for it.
func (m *Memory) Put(s *Segment) bool {
	k := newMemoryEntry(s)
	m.mu.Lock()
	defer m.unlock()
	return m.put(k)
}

// Promote returns the view of a copy in memory instead of the view of a segment on disk, if the
// segment should be in memory; otherwise the same view. It returns false if the segment cannot be
// read.
func (m *Memory) Promote(view View) (View, bool) {
	if view.file == nil || !m.shouldAdmit(view.file.header.key, view.file.header.length) {
		return view, true
	}
	defer view.Release()
	segment, err := view.file.load()
	if err != nil {
		return View{}, false // the segment was removed, or the failure was logged
	}
	k := newMemoryEntry(segment)
	m.mu.Lock()
	defer m.unlock()
	// A purge empties the disk first. So if the segment is still on disk, a purge that matches it
	// has not come to memory yet.
	if view.file.disk.isCurrent(view.file) {
		m.put(k)
	}
	return View{segment: segment, copied: true}, true
}

// shouldAdmit reports whether a segment that was found on disk should be in memory: a segment of
// one chunk if it fits, a larger one if it was evicted from memory a short time ago.
func (m *Memory) shouldAdmit(key Key, length int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return length <= ChunkSize && headCost(key)+length <= m.budget || m.isGhost(key)
}

// Reserve makes room for bytes that are being fetched; a negative number releases it. Reserved
// bytes count as used, up to half of the budget.
func (m *Memory) Reserve(bytes int64) {
	m.mu.Lock()
	defer m.unlock()
	m.reserved += bytes
	m.shrink(m.budget)
}

// SetBudget changes the budget, and evicts segments beyond it.
func (m *Memory) SetBudget(budget int64) {
	m.mu.Lock()
	defer m.unlock()
	m.budget = budget
	m.shrink(m.budget)
}

// unref ends the use of an extent by the lists. The extent is freed or, while it has readers,
// pinned. mu is held.
func (m *Memory) unref(k *memoryEntry) {
	switch {
	case k.extent == nil:
	case k.extent.users.Add(-listed) == 0:
		m.toFree = append(m.toFree, k.extent)
	default:
		m.pin(k.extent)
	}
}

// Purge removes the segments of the files that match and returns their number.
func (m *Memory) Purge(match Match) (n int) {
	m.all.Visit(locker{m}, match, func(_ Key, k *memoryEntry) {
		if k.segment != nil {
			n++
		}
		m.removeEntry(k)
	})
	return n
}

// locker is Memory.mu, with Memory.unlock as Unlock.
type locker struct{ m *Memory }

func (l locker) Lock()   { l.m.mu.Lock() }
func (l locker) Unlock() { l.m.unlock() }

// Stats are metrics of a tier.
type Stats struct {
	Entries  int
	Bytes    int64  // of the budget in use
	Budget   int64  // bytes
	Evicted  uint64 // segments, for lack of room
	Moved    uint64 // Memory: bytes that moved from the heap to the arena so far
	Failed   uint64 // Disk: failures after which reads or writes were disabled for a while
	Skipped  uint64 // Disk: segments that were not stored: the disk failed, was too slow, or is not listed yet
	Corrupt  uint64 // Disk: segments whose content was not the written one
	Disabled bool   // Disk: reads or writes are disabled
}

// Stats returns the metrics.
func (m *Memory) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Stats{Entries: m.recent.Len() + m.frequent.Len(), Bytes: m.total(), Budget: m.budget, Evicted: m.evicted,
		Moved: m.moved}
}

// extent is a segment in the arena, until its last user has released it.
type extent struct {
	arena.Extent
	memory *Memory      // counts the extent in its budget
	users  atomic.Int32 // number of readers, plus listed while it is in a list
	pinned bool         // in no list, but counted in memory.pinned; guarded by memory.mu
}

// listed is the share of the lists in the number of users of an extent.
const listed = 1 << 30

// newExtent copies chunks into the arena. The caller is the only reader of the extent.
func (m *Memory) newExtent(chunks [][]byte, length int64) (*extent, error) {
	reserved, err := m.arena.Reserve(length)
	if err != nil {
		return nil, err
	}
	p := &extent{Extent: reserved, memory: m}
	at := int64(0)
	for _, chunk := range chunks {
		n, err := p.WriteAt(chunk, at)
		if at += int64(n); err != nil {
			p.Free()
			return nil, err
		}
	}
	return p.use(), nil
}

// use adds a reader to an extent that is new, or has users already.
func (p *extent) use() *extent {
	if p.users.Add(1)&^listed == 1 {
		p.memory.inUse.Add(arena.Cost(p.Length))
	}
	return p
}

// isInUse reports whether the extent has readers.
func (p *extent) isInUse() bool { return p.users.Load()&^listed > 0 }

// removeReader removes a reader. The last user frees the extent.
func (p *extent) removeReader() {
	users := p.users.Add(-1)
	if users&^listed == 0 {
		p.memory.inUse.Add(-arena.Cost(p.Length))
	}
	if users == 0 {
		p.Free()
		p.memory.unpin(p)
	}
}

// at is View.At.
func (p *extent) at(offset, limit int64) content.Chunk {
	length := min(limit, p.Length-offset)
	return content.Chunk{File: p.File(), Resident: true, Offset: p.Offset + offset, Length: length}
}
