package origin

import (
	"context"
	"errors"
	"sync"

	"fastdfs-gateway/internal/fdfs"
)

// Stats count what was asked of other hosts. They only rise.
type Stats struct {
	Fetched, NotFound, Timeouts, Failed uint64 // files that were asked for

	Bytes uint64 // of files that came from other hosts
	// TrunkMismatches are trunk files whose content did not have their CRC32.
	TrunkMismatches uint64
}

// Counters keep Stats. They are safe for concurrent use.
type Counters struct {
	mu    sync.Mutex // guards stats
	stats Stats
}

// Stats returns the counts until now.
func (c *Counters) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// count counts a file that was asked for.
func (c *Counters) count(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.stats.Fetched++
	case errors.Is(err, fdfs.ErrNoFile):
		c.stats.NotFound++
	case errors.Is(err, context.DeadlineExceeded):
		c.stats.Timeouts++
	default:
		c.stats.Failed++
	}
}

func (c *Counters) addBytes(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Bytes += uint64(n)
}

func (c *Counters) addTrunkMismatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.TrunkMismatches++
}
