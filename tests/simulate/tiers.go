package main

import (
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"fastdfs-gateway/internal/cache/tier"
)

// tiers are the memory and the disk of a simulated gateway: a tier.Memory, with segments that share
// their bytes, and a list in place of a tier.Disk. Nothing fails or takes time, and there is one
// version of each file, of one segment. They are not safe for concurrent use.
type tiers struct {
	segments []*tier.Segment // by number of the file
	memory   *tier.Memory
	budget   int64 // of memory, in bytes
	disk     *simplelru.LRU[int32, int64]
	diskUsed int64 // bytes
	diskMax  int64 // bytes
}

// newTiers returns empty ones with budgets in bytes.
func newTiers(segments []*tier.Segment, memory, disk int64) *tiers {
	list, err := simplelru.NewLRU[int32, int64](math.MaxInt, nil)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	t := &tiers{segments: segments, budget: memory, disk: list, diskMax: disk}
	t.Restart()
	return t
}

// Restart does what a new start of the process does: memory is empty.
func (t *tiers) Restart() { t.memory = tier.NewMemory(t.budget) }

// Get tells whether a file is held. It counts as use, as tier.Stack.Get with touch.
func (t *tiers) Get(file int32) bool {
	s := t.segments[file]
	if _, ok := t.memory.Get(s.Key, s.Version, true); ok {
		return true
	}
	if _, ok := t.disk.Get(file); !ok {
		return false
	}
	if t.memory.Wants(s.Key, s.Length()) {
		t.memory.Put(s)
	}
	return true
}

// Put stores a file that is not held: in memory, and on disk as well where onDisk.
func (t *tiers) Put(file int32, onDisk bool) {
	s := t.segments[file]
	t.memory.Put(s)
	room := s.RoomOnDisk()
	if !onDisk || room > t.diskMax {
		return
	}
	for t.diskUsed+room > t.diskMax {
		_, freed, _ := t.disk.RemoveOldest()
		t.diskUsed -= freed
	}
	t.disk.Add(file, room)
	t.diskUsed += room
}

// Holds tells whether a file is held. It counts as no use.
func (t *tiers) Holds(file int32) bool {
	_, ok := t.memory.Holds(t.segments[file].Key)
	return ok || t.disk.Contains(file)
}

// shared are the bytes of all segments.
var shared = make([]byte, tier.ChunkSize)

// segment is a file of so many bytes.
func segment(name string, size int64) *tier.Segment {
	s := &tier.Segment{Key: tier.Key{File: name}, Version: tier.Version{Size: size}}
	for ; size > 0; size -= tier.ChunkSize {
		n := min(size, tier.ChunkSize)
		s.Chunks = append(s.Chunks, shared[:n:n])
	}
	return s
}
