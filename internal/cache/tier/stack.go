package tier

// Stack is memory above a disk. Segments are put into both. A segment found on disk is copied to
// memory if the memory admits it; other segments are sent from the page cache.
type Stack struct {
	memory *Memory
	disk   *Disk
}

var _ Tier = (*Stack)(nil)

// NewStack returns a stack of two tiers, which the caller still owns.
func NewStack(memory *Memory, disk *Disk) *Stack { return &Stack{memory, disk} }

// Get implements Tier.
func (s *Stack) Get(key Key, v Version, touch bool) (View, bool) {
	if view, ok := s.memory.Get(key, v, touch); ok {
		return view, true
	}
	drops := s.disk.dropsSoFar()
	view, ok := s.disk.Get(key, v, touch)
	if ok && touch && view.file != nil && s.memory.Wants(key, view.file.header.length) {
		return s.promote(view, drops)
	}
	return view, ok
}

// promote copies a segment into memory. drops is how often Drop had been called before it was
// found.
func (s *Stack) promote(view View, drops uint64) (View, bool) {
	defer view.Release()
	segment, err := view.file.load()
	if err != nil {
		return View{}, false // it was dropped or logged
	}
	if s.memory.Put(segment) && s.disk.dropsSoFar() != drops {
		s.memory.Drop(MatchFile(segment.File)) // perhaps it was meant
	}
	return View{segment: segment, copied: true}, true
}

// dropsSoFar tells when Drop was called in between.
func (d *Disk) dropsSoFar() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.drops
}

// Holds implements Tier.
func (s *Stack) Holds(key Key) (Version, bool) {
	if v, ok := s.memory.Holds(key); ok {
		return v, true
	}
	return s.disk.Holds(key)
}

// Put implements Tier.
func (s *Stack) Put(segment *Segment) bool {
	above, below := s.memory.Put(segment), s.disk.Put(segment)
	return above || below
}

// Drop implements Tier. The disk comes first, so that nothing is copied up after memory was
// emptied.
func (s *Stack) Drop(m Match) int {
	n := s.disk.Drop(m)
	return max(n, s.memory.Drop(m))
}
