package origin

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"fastdfs-gateway/storage"
)

// Counters count what was asked of other hosts. They only rise.
type Counters struct {
	fetched, notFound, timeouts, failed atomic.Uint64

	bytes           atomic.Uint64 // of content
	trunkMismatches atomic.Uint64
}

// Stats are Counters at one moment.
type Stats struct {
	Fetched, NotFound, Timeouts, Failed uint64 // files that were asked for

	Bytes uint64 // of files that came from other hosts
	// TrunkMismatches are trunk files whose content did not have their CRC32.
	TrunkMismatches uint64
}

// Stats returns the counts until now.
func (c *Counters) Stats() Stats {
	return Stats{
		Fetched: c.fetched.Load(), NotFound: c.notFound.Load(), Timeouts: c.timeouts.Load(), Failed: c.failed.Load(),
		Bytes: c.bytes.Load(), TrunkMismatches: c.trunkMismatches.Load(),
	}
}

// count counts a file that was asked for.
func (c *Counters) count(err error) {
	switch {
	case err == nil:
		c.fetched.Add(1)
	case errors.Is(err, storage.ErrNotFound):
		c.notFound.Add(1)
	case errors.Is(err, context.DeadlineExceeded):
		c.timeouts.Add(1)
	default:
		c.failed.Add(1)
	}
}

// countedStream counts the bytes of a stream.
type countedStream struct {
	io.ReadCloser
	c *Counters
}

func (s countedStream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.c.bytes.Add(uint64(max(n, 0)))
	return n, err
}
