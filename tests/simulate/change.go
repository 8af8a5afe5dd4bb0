package main

import (
	"slices"
)

// rate is the requests per second that every gateway gets.
const rate = 1000

// change is what happens when some gateways die, come back with their disks, and when one more
// joins.
type change struct {
	dead   int
	moved  float64 // share of the files whose owner died
	lost   float64 // share of the files held before that no living gateway holds
	before counts  // in a minute
	after  counts  // in the minute after the deaths were noticed
	back   counts  // in the minute after they were back, a minute later
	joined counts  // in the minute after one more has joined; empty but for the last change
	taken  float64 // share of the files whose owner it has become
}

// minute is the number of requests in a minute.
func (s *simulation) minute() int { return s.scenario.gateways * rate * 60 / s.scale }

// change lets gateways die, one in 100 and one in 10, but at least one.
func (s *simulation) change() []change {
	var all []change
	for _, part := range []int{100, 10} {
		if dead := s.scenario.gateways / part; dead > 0 || part == 10 {
			all = append(all, s.die(max(1, dead)))
		}
	}
	last := &all[len(all)-1]
	before := s.place
	s.join()
	s.settle()
	last.taken = before.differs(s.place)
	last.joined = s.run(s.minute())
	return all
}

// die is one change: the first gateways die, and come back.
func (s *simulation) die(dead int) change {
	c := change{dead: dead, before: s.run(s.minute())}
	all, before := slices.Clone(s.living), s.place
	s.living = slices.Clone(all[dead:])
	held, lost := 0, 0
	for file := range s.traffic.sizes {
		switch had := func(g int) bool { return s.gateways[g].Holds(int32(file)) }; {
		case s.isHeld(int32(file)):
			held++
		case slices.ContainsFunc(all[:dead], had):
			held++
			lost++
		}
	}
	c.lost = float64(lost) / float64(max(1, held))
	s.settle()
	c.moved = before.differs(s.place)
	s.search = true
	c.after = s.run(s.minute())
	for _, g := range all[:dead] {
		s.gateways[g].Restart()
	}
	s.living = all
	s.settle()
	c.back = s.run(s.minute())
	s.search = false
	return c
}

// differs is the share of the files that have another owner.
func (p placement) differs(other placement) float64 {
	n := 0
	for i := range p.ranks {
		if p.ranks[i][0] != other.ranks[i][0] {
			n++
		}
	}
	return float64(n) / float64(len(p.ranks))
}
