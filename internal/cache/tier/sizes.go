package tier

// Sizes is a Stack without bytes, for simulations: it decides by the code of Memory and Disk which
// segments stay, and knows only their keys and lengths. Nothing in it fails or takes time, and
// there is one version of each file. It is not safe for concurrent use.
//
//	s := tier.NewSizes[int](tier.SizesOptions{Memory: 1 << 30, Disk: 10 << 30, Name: 60})
//	if !s.Get(7, 4096) {
//		s.Put(7, 4096, true)
//	}
type Sizes[K comparable] struct {
	o      SizesOptions
	memory twoQueue[K, *remembered]
	disk   index[K, fileSize]
}

// SizesOptions say how much the tiers hold.
type SizesOptions struct {
	Memory int64 // budget in bytes
	Disk   int64 // budget in bytes; 0 = there is no disk
	Name   int   // length in bytes of each file id
}

// remembered is a segment in memory: what it takes of the budget.
type remembered struct{ cost int64 }

func (r *remembered) takes() int64 { return r.cost }

// fileSize is a segment on disk: what it takes of the budget.
type fileSize int64

func (f fileSize) takes() int64 { return int64(f) }

// NewSizes returns one that holds nothing.
func NewSizes[K comparable](o SizesOptions) *Sizes[K] {
	s := &Sizes[K]{o: o, disk: newIndex[K, fileSize]()}
	s.emptyMemory()
	return s
}

func (s *Sizes[K]) emptyMemory() {
	ghost := int64(ghostCost + s.o.Name)
	s.memory = newTwoQueue(s.o.Memory, func(K) int64 { return ghost }, func(*remembered) {})
}

// Get tells whether a segment of length bytes is held. It counts as use, as Stack.Get with touch.
func (s *Sizes[K]) Get(key K, length int64) bool {
	if r, ok := s.memory.find(key); ok {
		s.memory.touch(key, r)
		s.place(r, length)
		return true
	}
	if !s.disk.has(key) {
		return false
	}
	s.disk.get(key, true)
	if promotesAlways(length) || s.memory.ghosts.Contains(key) {
		s.remember(key, length)
	}
	return true
}

// place counts a segment as Memory.move does.
func (s *Sizes[K]) place(r *remembered, length int64) {
	if length < leastPlaced || s.o.Memory < SegmentSize {
		return
	}
	cost := headCost(s.o.Name) + arenaCost(length)
	s.memory.used += cost - r.cost
	r.cost = cost
	s.memory.shrink(s.o.Memory)
}

// remember puts a segment into memory.
func (s *Sizes[K]) remember(key K, length int64) {
	chunks := (length + ChunkSize - 1) / ChunkSize
	s.memory.put(key, &remembered{headCost(s.o.Name) + 24*chunks + length}, false)
}

// Put stores a segment of length bytes that is not held: in memory, and on disk as well where
// onDisk.
func (s *Sizes[K]) Put(key K, length int64, onDisk bool) {
	s.remember(key, length)
	if !onDisk || !fitsDisk(length, s.o.Disk) {
		return
	}
	room := fileRoom(length, s.o.Name)
	for s.disk.used+room > s.o.Disk {
		s.disk.oldest()
	}
	s.disk.add(key, fileSize(room))
}

// Holds tells whether a segment is held. It counts as no use.
func (s *Sizes[K]) Holds(key K) bool {
	_, ok := s.memory.find(key)
	return ok || s.disk.has(key)
}

// Used is the bytes that are taken of the budgets.
func (s *Sizes[K]) Used() (memory, disk int64) { return s.memory.total(), s.disk.used }

// Restart does what a new start of the process does: memory is empty, and all that is on disk was
// found there.
func (s *Sizes[K]) Restart() {
	s.emptyMemory()
	found := newIndex[K, fileSize]()
	for _, key := range s.disk.keys(func(K) bool { return true }) { // oldest first
		found.addOld(key, s.disk.get(key, false))
	}
	s.disk = found
}
