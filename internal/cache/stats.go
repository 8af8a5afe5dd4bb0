package cache

import (
	"sync/atomic"

	"fastdfs-gateway/internal/cache/tier"
)

// Stats are counters of a Cache since New, and the state of its tiers.
type Stats struct {
	Memory, Disk tier.Stats
	Records      int   // files with metadata
	RecordBytes  int64 // of Records
	RecordBudget int64 // bytes

	Fills int64 // running

	// Coalesced are segments that several streams of this gateway wanted while one fetched them,
	// LargestCoalesced the most streams of one, and DownloadsSaved all of these streams but the
	// first of each.
	Coalesced        uint64
	LargestCoalesced int64
	DownloadsSaved   uint64

	StaleServed uint64 // results of Get from expired entries
	MemoryHits  uint64 // segments of streams that were in memory
	DiskHits    uint64 // on disk
	Misses      uint64 // and those that were not here, or just on their way
	PeerBytes   uint64 // from other gateways
	PeerServed  uint64 // fetches by other gateways
	CRCErrors   uint64 // files whose content was not the one that their CRC32 says
}

type counters struct {
	fills                               atomic.Int64
	stale, memoryHits, diskHits, misses atomic.Uint64
	peerBytes, peerServed, corrupt      atomic.Uint64
	coalesced, saved                    atomic.Uint64
	largestCoalesced                    atomic.Int64 // changed with Cache.mu held
}

// countCoalesced counts a segment that has been fetched, by its number of streams. Cache.mu is
// held.
func (n *counters) countCoalesced(streams int) {
	if streams < 2 {
		return
	}
	n.coalesced.Add(1)
	n.saved.Add(uint64(streams - 1))
	n.largestCoalesced.Store(max(n.largestCoalesced.Load(), int64(streams)))
}

// Stats returns the metrics, which are not of one moment.
func (c *Cache) Stats() Stats {
	n := &c.n
	s := Stats{
		Memory:      c.memory.Stats(),
		Fills:       n.fills.Load(),
		StaleServed: n.stale.Load(), MemoryHits: n.memoryHits.Load(), DiskHits: n.diskHits.Load(),
		Misses: n.misses.Load(), PeerBytes: n.peerBytes.Load(), PeerServed: n.peerServed.Load(),
		Coalesced: n.coalesced.Load(), LargestCoalesced: n.largestCoalesced.Load(), DownloadsSaved: n.saved.Load(),
		CRCErrors: n.corrupt.Load(),
	}
	if c.disk != nil {
		s.Disk = c.disk.Stats()
	}
	c.metas.mu.Lock()
	s.Records, s.RecordBytes, s.RecordBudget = len(c.metas.records), c.metas.used, c.metas.max
	c.metas.mu.Unlock()
	return s
}
