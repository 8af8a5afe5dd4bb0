package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"fastdfs-gateway/internal/fleet"
)

// A load balancer sends each request to a gateway.
const (
	byURL  = "URL hash" // a consistent hash of the URL, another one than the fleet's own
	random = "random"   // by chance, as round robin or least connections are for a single file
)

// scenario is one fleet under one traffic.
type scenario struct {
	gateways int
	copies   int // gateways that keep a file on disk; 0 = all
	balancer string
	exponent float64
	scale    int // one simulated file, and byte of a budget, stands for so many
	memory   int64
	disk     int64
}

// placement says where each file belongs while the same gateways live: indexes of gateways.
type placement struct {
	ranks [][2]int16 // the owner, and the next in rank; -1 = there is none
	front []int16    // where a load balancer that hashes sends the requests
}

// placements remembers the placement of each set of gateways, for all runs.
type placements struct {
	mu    sync.Mutex // guards known
	known map[string]func() placement
}

// of gives the placement of files on the gateways that live.
func (p *placements) of(files int, living []int) placement {
	p.mu.Lock()
	key := fmt.Sprint(files, living)
	found := p.known[key]
	if found == nil {
		found = sync.OnceValue(func() placement { return place(files, living) })
		p.known[key] = found
	}
	p.mu.Unlock()
	return found()
}

func gatewayName(i int) string { return fmt.Sprintf("https://10.0.%d.%d:8887", i/256, i%256) }

// place ranks the gateways for each file by the program's own code; for the load balancer they have
// other names.
func place(files int, living []int) placement {
	index, names, fronts := map[string]int16{}, []string(nil), []string(nil)
	for _, i := range living {
		name := gatewayName(i)
		front := strings.Replace(name, "https", "front", 1)
		index[name], index[front] = int16(i), int16(i)
		names, fronts = append(names, name), append(fronts, front)
	}
	members, balancer := fleet.NewMembers(names), fleet.NewMembers(fronts)
	p := placement{ranks: make([][2]int16, files), front: make([]int16, files)}
	for file := range files {
		name := fileName(file)
		p.ranks[file] = [2]int16{-1, -1}
		for rank, member := range members.Rank(name+"#0", 2) {
			p.ranks[file][rank] = index[member]
		}
		p.front[file] = index[balancer.Rank(name, 1)[0]]
	}
	return p
}

// counts are what happened to some requests.
type counts struct {
	requests  int
	own       int // answered from memory or disk of the gateway that was asked
	owner     int // from those of the owner
	next      int // from those of the next in rank, which the owner has asked for a copy
	downloads int // from a storage
	held      int // of these, files that a living gateway holds; see simulation.search
	leases    int // locks that were taken and given back
	served    int64
	written   int64 // bytes, to disks
	between   int64 // bytes that went from one gateway to another
}

// simulation is a fleet. Requests come one after the other: nothing in it takes time.
type simulation struct {
	scenario
	traffic  *traffic
	places   *placements
	chance   *rand.Rand
	gateways []*tiers
	living   []int
	place    placement
	search   bool // count downloads of files that a living gateway holds
	counts   counts
}

func newSimulation(s scenario, t *traffic, p *placements) *simulation {
	sim := &simulation{scenario: s, traffic: t, places: p, chance: rand.New(rand.NewPCG(1, uint64(s.gateways)))}
	for range s.gateways {
		sim.join()
	}
	sim.settle()
	return sim
}

// join adds an empty gateway. settle makes it known.
func (s *simulation) join() {
	scale := int64(s.scale)
	s.living = append(s.living, len(s.gateways))
	s.gateways = append(s.gateways, newTiers(s.traffic.segments, s.memory/scale, s.disk/scale))
}

// settle lets all gateways and the load balancer know who lives.
func (s *simulation) settle() {
	slices.Sort(s.living)
	s.place = s.places.of(len(s.traffic.sizes), s.living)
}

// request sends one request to a gateway of the load balancer's choice.
func (s *simulation) request(file int32) {
	g := s.living[s.chance.IntN(len(s.living))]
	if s.balancer == byURL {
		g = int(s.place.front[file])
	}
	size, owner := s.traffic.sizes[file], int(s.place.ranks[file][0])
	s.counts.requests++
	s.counts.served += size
	if s.gateways[g].Get(file) {
		s.counts.own++
		return
	}
	if g == owner {
		s.fetch(owner, g, file)
		return
	}
	s.counts.between += size
	if s.gateways[owner].Get(file) {
		s.counts.owner++
	} else {
		s.fetch(owner, g, file)
	}
	s.store(g, file)
}

// fetch gets a file for its owner, on behalf of the gateway that was asked: under the lock, from
// the next in rank or a storage.
func (s *simulation) fetch(owner, asked int, file int32) {
	size, next := s.traffic.sizes[file], int(s.place.ranks[file][1])
	s.counts.leases++
	if next >= 0 && next != asked && s.gateways[next].Get(file) {
		s.counts.next++
		s.counts.between += size
	} else {
		s.counts.downloads++
		if s.search && s.isHeld(file) {
			s.counts.held++
		}
	}
	s.store(owner, file)
}

// store puts a file into the tiers of a gateway: into memory, and on disk by its rank.
func (s *simulation) store(g int, file int32) {
	size, ranks := s.traffic.sizes[file], s.place.ranks[file]
	keep := s.copies == 0 || int(ranks[0]) == g || s.copies == 2 && int(ranks[1]) == g
	if keep {
		s.counts.written += size
	}
	s.gateways[g].Put(file, keep)
}

// isHeld tells whether a living gateway has a file.
func (s *simulation) isHeld(file int32) bool {
	if s.gateways[s.place.ranks[file][0]].Holds(file) && slices.Contains(s.living, int(s.place.ranks[file][0])) {
		return true // the usual case
	}
	return slices.ContainsFunc(s.living, func(g int) bool { return s.gateways[g].Holds(file) })
}

// run sends requests and counts what happens to them.
func (s *simulation) run(requests int) counts {
	s.counts = counts{}
	for range requests {
		s.request(s.traffic.draw(s.chance))
	}
	return s.counts
}

// warm brings the fleet to where it stays: each file is asked for once, the least popular first;
// then requests come as usual until the memory of each gateway was filled several times, and as
// much was written to the disks as they hold, or nearly nothing is written any more. What a disk
// holds then depends on these requests alone, as the oldest goes first.
func (s *simulation) warm() {
	files := len(s.traffic.sizes)
	for file := files - 1; file >= 0; file-- {
		s.request(int32(file))
	}
	budget := func(each int64) int64 { return int64(len(s.gateways)) * each / int64(s.scale) }
	s.run(memoryTurns * int(float64(budget(s.memory))/meanSize))
	for room := budget(s.disk); room > 0; {
		written := s.run(files).written
		if room -= written; written < room/1000 {
			return
		}
	}
}

// memoryTurns is how many files each gateway is asked for to begin with, as a multiple of those
// that its memory holds.
const memoryTurns = 4
