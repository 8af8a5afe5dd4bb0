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
	view, ok := s.disk.Get(key, v, touch)
	if ok && touch && view.file != nil && s.memory.ShouldAdmit(key, view.file.header.length) {
		return s.promote(view)
	}
	return view, ok
}

// promote copies a segment into memory. Purge empties the disk first: a segment that is still there
// behind the Put is one that memory purges later, if it is meant.
func (s *Stack) promote(view View) (View, bool) {
	defer view.Release()
	segment, err := view.file.load()
	if err != nil {
		return View{}, false // it was removed, or the failure logged
	}
	if s.memory.Put(segment) && !s.disk.isCurrent(view.file) {
		s.memory.invalidate(segment)
	}
	return View{segment: segment, copied: true}, true
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

// Purge implements Tier. The disk comes first, so that nothing is copied up after memory was
// emptied.
func (s *Stack) Purge(m Match) int {
	n := s.disk.Purge(m)
	return max(n, s.memory.Purge(m))
}
