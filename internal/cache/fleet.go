package cache

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/content"
)

// ErrFleetDown is the error of a Fleet that cannot ask for a lease now. The cache goes on alone.
var ErrFleetDown = errors.New("leases of the fleet cannot be asked for")

// Held is the error for a lease that another gateway has.
type Held struct {
	Holder string                          // the peer, as Open takes it; empty when it cannot be reached
	Wait   func(ctx context.Context) error // waits until the lease is released or has expired
}

// Error implements error.
func (h *Held) Error() string { return "lease is held by " + h.Holder }

// Meta is what a storage has said about a file.
type Meta struct {
	Version Version
	Gone    bool          // there is no such file; Version means nothing
	Checked time.Time     // when a storage was asked; zero: not known
	Took    time.Duration // until it had answered
	TTL     time.Duration // of Gone: how long that holds; 0: as Options say; negative: not at all
}

// MetaOnly is the index, in the key of an entry, for the metadata of a file without bytes. It is
// ranked with segment 0.
const MetaOnly = -1

// Whole is the index, in the key of an entry, for all segments of a file of several segments that
// is verified first: they are fetched by one fill, verified together and then stored one by one.
// They are ranked with segment 0.
const Whole = content.Whole

// entryAt returns the key of the entry that brings the byte at an offset of a file.
func (c *Cache) entryAt(file string, offset int64) SegmentKey {
	if size, ok := c.o.VerifyFirst(file); ok && size > SegmentSize {
		return SegmentKey{File: file, Index: Whole}
	}
	return tier.KeyAt(file, offset)
}

// start returns the offset of the first byte of an entry in its file.
func start(key SegmentKey) int64 { return max(0, key.Index) * SegmentSize }

// segmentsOf yields the keys of the segments of an entry with content.
func segmentsOf(key SegmentKey, v Version) iter.Seq[SegmentKey] {
	return func(yield func(SegmentKey) bool) {
		if key.Index != Whole {
			yield(key)
			return
		}
		for i := range v.Segments() {
			if !yield(SegmentKey{File: key.File, Index: i}) {
				return
			}
		}
	}
}

// PeerRequest asks a gateway for an entry.
type PeerRequest struct {
	Key    SegmentKey
	Want   *Version      // nil: the version is not known
	Offset int64         // of the first byte that is missing, in the segment
	MaxAge time.Duration // as in GetOptions
	// Copy: the gateway gives what it has stored, and is not waited for. Otherwise it fetches what
	// it lacks.
	Copy bool
	// RequestedAs is that of the Source of the gateway that asks.
	RequestedAs string `json:"Asked,omitempty"`
}

// Fleet is what the cache asks of the other gateways. Its methods may be called from many
// goroutines.
type Fleet interface {
	// Rank names the first n gateways for a key, the owner first. This gateway is "". Without peers
	// the list is empty.
	Rank(key string, n int) []string
	// Open asks a peer, as its PeerOpen answers. The body is nil for MetaOnly. With ErrNotFound the
	// Meta tells how long that holds. The body ends in an error other than io.EOF when it ends
	// early, and with ctx; the caller closes it.
	Open(ctx context.Context, peer string, r PeerRequest) (Meta, io.ReadCloser, error)
	// AcquireLease takes the lease of a key without waiting; *Held when another gateway has it. It
	// is renewed until release is called; lease ends when it was lost. Other errors come soon.
	AcquireLease(ctx context.Context, key string) (lease context.Context, release func(), err error)
}

// Standalone is the Fleet of a gateway without others.
type Standalone struct{}

var _ Fleet = Standalone{}

// Rank implements Fleet.
func (Standalone) Rank(string, int) []string { return nil }

// Open implements Fleet.
func (Standalone) Open(context.Context, string, PeerRequest) (Meta, io.ReadCloser, error) {
	return Meta{}, nil, ErrNotHere
}

// AcquireLease implements Fleet.
func (Standalone) AcquireLease(context.Context, string) (context.Context, func(), error) {
	return context.Background(), func() {}, nil
}
