package origin

import (
	"context"
	"errors"
	"sync/atomic"

	"fastdfs-gateway/internal/fdfs"
)

// Stats are counts of requests to other hosts. They only rise.
type Stats struct {
	Fetched, NotFound, Timeouts, Failed uint64 // downloads that have begun, and requests that have failed

	Bytes uint64 // of files that came from other hosts
	// TrunkMismatches are trunk files whose content did not have their CRC32, without a cache.
	TrunkMismatches uint64
}

// Counters keep Stats. They are safe for concurrent use.
type Counters struct{ fetched, notFound, timeouts, failed, bytes, trunkMismatches atomic.Uint64 }

// Stats returns the present counts, which are not read at the same moment.
func (c *Counters) Stats() Stats {
	return Stats{Fetched: c.fetched.Load(), NotFound: c.notFound.Load(), Timeouts: c.timeouts.Load(),
		Failed: c.failed.Load(), Bytes: c.bytes.Load(), TrunkMismatches: c.trunkMismatches.Load()}
}

// count counts a download that has begun, or a request that has failed with err.
func (c *Counters) count(err error) {
	switch {
	case err == nil:
		c.fetched.Add(1)
	case errors.Is(err, fdfs.ErrNoFile):
		c.notFound.Add(1)
	case errors.Is(err, context.DeadlineExceeded):
		c.timeouts.Add(1)
	default:
		c.failed.Add(1)
	}
}
