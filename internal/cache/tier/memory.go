package tier

import (
	"container/list"
	"sync"

	"fastdfs-gateway/internal/content/arena"
)

// What the bookkeeping of an entry takes, in bytes: the list element, the map's slot, the kept and
// the Segment; a test compares it with what the process really takes.
const (
	segmentCost = 288
	ghostBytes  = 176
)

// leastPlaced is how many bytes a segment has at least that is moved to where sendfile can take it:
// fewer are sent sooner by copying them behind the answer's head.
const leastPlaced = 16 << 10

// Memory is a tier in the memory of the process, with a budget in bytes that includes keys and
// bookkeeping.
//
// After UseSendfile, a segment that is requested again moves into an arena, unless it is small. The
// arena is shared memory of the process, not heap. A segment that is evicted from it while a reader
// has it lingers, and counts until the reader is done.
type Memory struct {
	arena *arena.Arena // nil: segments stay in the heap

	mu sync.Mutex // guards what follows
	lists
	budget    int64
	reserved  int64
	lingering int64 // bytes of evicted segments that are still read
	evicted   uint64
	moved     uint64
	given     []*place // that are not used any more, until unlock
}

var _ Tier = (*Memory)(nil)

// kept is a segment in a list of a Memory, or the ghost of one; the Memory's mu guards it.
type kept struct {
	key     Key
	segment *Segment      // without its chunks where it has a place; nil: a ghost
	place   *place        // nil until it is moved
	cost    int64         // bytes in the budget; of a ghost: what the segment took
	list    *list.List    // the one that it is in
	use     *list.Element // its place there
	moving  bool          // to the arena: that is going on
}

// NewMemory returns a tier that takes budget bytes at most.
func NewMemory(budget int64) *Memory {
	return &Memory{budget: budget, lists: lists{all: make(files[kept])}}
}

// UseSendfile lets segments move to where sendfile(2) sends them from; it comes before any use. The
// error is why they cannot on this system: they have to be copied to be sent.
func (m *Memory) UseSendfile() (err error) {
	if m.arena, err = arena.New("segments"); err != nil {
		m.arena = nil
	}
	return err
}

// headCost is what a segment takes without its bytes.
func headCost(key Key) int64 { return int64(segmentCost + len(key.File)) }

func ghostCost(key Key) int64 { return int64(ghostBytes + len(key.File)) }

// cost is what a segment takes in the heap.
func cost(s *Segment) int64 {
	n := headCost(s.Key) + int64(24*cap(s.Chunks))
	for _, c := range s.Chunks {
		n += int64(cap(c))
	}
	return n
}

// unlock unlocks mu, and makes holes of the places that are not used any more: that takes a while.
func (m *Memory) unlock() {
	given := m.given
	m.given = nil
	m.mu.Unlock()
	for _, p := range given {
		p.Free()
	}
}

// freed is told of a place whose last user was another one.
func (m *Memory) freed(p *place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.lingering {
		m.lingering -= arena.Cost(p.Length)
	}
}

// lingers counts a place that is in no list and still used. m.mu is held.
func (m *Memory) lingers(p *place) {
	p.lingering = true
	m.lingering += arena.Cost(p.Length)
}

// Get implements Tier.
func (m *Memory) Get(key Key, v Version, touch bool) (View, bool) { return m.get(key, v, touch, touch) }

// GetToCopy is Get with touch for a reader that copies the bytes: the segment does not move.
func (m *Memory) GetToCopy(key Key, v Version) (View, bool) { return m.get(key, v, true, false) }

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
	if k.place != nil {
		defer m.mu.Unlock()
		return View{place: k.place.use()}, true
	}
	segment := k.segment
	moves = moves && m.movesLocked(k)
	m.mu.Unlock()
	if moves {
		if p := m.move(k, segment); p != nil {
			return View{place: p}, true
		}
	}
	return View{segment: segment}, true
}

// movesLocked tells whether the caller is to move a segment into the arena. m.mu is held.
func (m *Memory) movesLocked(k *kept) bool {
	if k.moving || m.arena == nil || k.segment.Length() < leastPlaced {
		return false
	}
	k.moving = true
	return true
}

// move copies a segment into the arena, and gives its place to the caller, or nil
// where there is no memory for it.
func (m *Memory) move(k *kept, s *Segment) *place {
	p, err := newPlace(m.arena, s.Chunks, s.Length())
	if err != nil {
		return nil // it is not tried again
	}
	m.mu.Lock()
	defer m.unlock()
	p.memory = m
	m.moved += uint64(p.Length)
	if m.find(k.key) != k {
		m.lingers(p) // it has been evicted or dropped meanwhile: this is the last time that it is of use
		return p
	}
	k.segment, k.place = &Segment{Key: s.Key, Version: s.Version}, p.use()
	m.used -= k.cost
	k.cost = headCost(s.Key) + arena.Cost(p.Length)
	m.used += k.cost
	m.shrink(m.budget) // the last page of it may be too much
	return p
}

// Holds implements Tier.
func (m *Memory) Holds(key Key) (Version, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.find(key)
	if k == nil {
		return Version{}, false
	}
	return k.segment.Version, true
}

// Put implements Tier.
func (m *Memory) Put(s *Segment) bool {
	k := &kept{key: s.Key, segment: s, cost: cost(s)}
	m.mu.Lock()
	defer m.unlock()
	return m.put(k)
}

// discard removes a segment, unless there is another one in its place.
func (m *Memory) discard(s *Segment) {
	m.mu.Lock()
	defer m.unlock()
	if k := m.find(s.Key); k != nil && k.segment.Version == s.Version {
		m.removeEntry(k)
	}
}

// Wants tells whether a segment that was found on disk is to be put: small ones always, of one
// chunk, larger ones when they were evicted not long ago.
func (m *Memory) Wants(key Key, length int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return length <= ChunkSize || m.isGhost(key)
}

// Reserve makes room for bytes that are being fetched and will be Put, or forgotten; a negative
// number gives it back. What is reserved counts as used, up to half of the budget.
func (m *Memory) Reserve(bytes int64) {
	m.mu.Lock()
	defer m.unlock()
	m.reserved += bytes
	m.shrink(m.budget)
}

// SetBudget changes the budget, and evicts what is too much.
func (m *Memory) SetBudget(budget int64) {
	m.mu.Lock()
	defer m.unlock()
	m.budget = budget
	m.shrink(m.budget)
}

// letGo gives up the place of a segment that has left the lists. m.mu is held.
func (m *Memory) letGo(k *kept) {
	switch {
	case k.place == nil:
	case k.place.users.Add(-1) == 0:
		m.given = append(m.given, k.place)
	default:
		m.lingers(k.place)
	}
}

// Drop implements Tier.
func (m *Memory) Drop(match Match) int {
	n := 0
	drop := func(_ Key, k *kept) {
		if k.segment != nil {
			n++
		}
		m.removeEntry(k)
	}
	if match.IsFile() {
		m.mu.Lock()
		defer m.unlock()
		m.all.each(string(match), drop)
		return n
	}
	Walk(locker{m}, m.all, func(file string, _ segments[kept]) {
		if match.Matches(file) {
			m.all.each(file, drop)
		}
	})
	return n
}

// locker is the mutex of a Memory, with its unlock.
type locker struct{ m *Memory }

func (l locker) Lock()   { l.m.mu.Lock() }
func (l locker) Unlock() { l.m.unlock() }

// Stats are metrics of a tier.
type Stats struct {
	Entries int
	Bytes   int64  // that are taken, of the budget
	Budget  int64  // bytes
	Evicted uint64 // segments, for want of room
	Moved   uint64 // Memory: bytes that went from the heap to a file in memory, so far
	Failed  uint64 // Disk: times that the disk failed and was left alone for a while
	Skipped uint64 // Disk: segments that were not stored, because it failed or was too slow
	Damaged uint64 // Disk: segments that were not what was written
	Off     bool   // Disk: it is being left alone
}

// Stats gives the metrics.
func (m *Memory) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Stats{Entries: m.recent.Len() + m.frequent.Len(), Bytes: m.total(), Budget: m.budget, Evicted: m.evicted,
		Moved: m.moved}
}
