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

	// Coalesced is the number of segments that several streams of this gateway read from one fill,
	// LargestCoalesced the largest number of streams of one segment, and DownloadsSaved the number
	// of all these streams without the first one of each segment.
	Coalesced        uint64
	LargestCoalesced int64
	DownloadsSaved   uint64

	StaleServed uint64 // results of Get from expired entries
	MemoryHits  uint64 // segments of streams that were in memory
	DiskHits    uint64 // the same on disk
	Misses      uint64 // segments of streams that were in no tier, also while they were being fetched
	PeerBytes   uint64 // received from other gateways
	PeerServed  uint64 // bodies opened for other gateways
	CRCErrors   uint64 // fetches of files whose content was corrupted
}

type counters struct {
	fills                               atomic.Int64
	stale, memoryHits, diskHits, misses atomic.Uint64
	peerBytes, peerServed, corrupt      atomic.Uint64
	coalesced, saved                    atomic.Uint64
	largestCoalesced                    atomic.Int64 // changed with Cache.mu held
}

// countCoalesced counts a segment that was fetched, by the number of its streams. Cache.mu is held.
func (n *counters) countCoalesced(streams int) {
	if streams < 2 {
		return
	}
	n.coalesced.Add(1)
	n.saved.Add(uint64(streams - 1))
	n.largestCoalesced.Store(max(n.largestCoalesced.Load(), int64(streams)))
}

// Stats returns the metrics, which are not read at the same moment.
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
	s.Records, s.RecordBytes, s.RecordBudget = c.metas.byUse.Len(), c.metas.used, c.metas.max
	c.metas.mu.Unlock()
	return s
}
