package fleet

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Members are the gateways that own entries. Every gateway with the same list ranks them alike.
type Members struct {
	members []ranked
}

// ranked is one member and the hash of its name.
type ranked struct {
	name string
	hash uint64
}

// NewMembers takes the names of the members in any order.
func NewMembers(names []string) Members {
	m := Members{members: make([]ranked, 0, len(names))}
	for _, name := range names {
		m.members = append(m.members, ranked{name, xxhash.Sum64String(name)})
	}
	slices.SortFunc(m.members, func(x, y ranked) int { return cmp.Compare(x.name, y.name) })
	m.members = slices.Compact(m.members)
	return m
}

// Len is the number of members.
func (m Members) Len() int { return len(m.members) }

// Names lists the members by name.
func (m Members) Names() []string {
	names := make([]string, 0, len(m.members))
	for _, member := range m.members {
		names = append(names, member.name)
	}
	return names
}

// Rank gives the first n members for a key, the owner first, by rendezvous hashing (Thaler and
// Ravishankar: Using name-based mappings to increase hit rates, 1998): each member has a score for
// the key, and the highest scores win. A member that joins or leaves changes the order of the
// others for no key.
func (m Members) Rank(key string, n int) []string {
	n = min(n, len(m.members))
	if n <= 0 {
		return nil
	}
	hash := xxhash.Sum64String(key)
	type scored struct {
		score uint64
		name  string
	}
	best := make([]scored, 0, n+1)
	for _, member := range m.members {
		score := mix(member.hash ^ hash)
		if len(best) == n && score <= best[n-1].score {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, score, func(s scored, score uint64) int {
			return cmp.Compare(score, s.score)
		})
		best = slices.Insert(best, at, scored{score, member.name})[:min(n, len(best)+1)]
	}
	names := make([]string, 0, n)
	for _, s := range best {
		names = append(names, s.name)
	}
	return names
}

// mix spreads each bit of x over all bits of the result (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
