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

// ErrFleetDown is the error of a Fleet that has no leases at present. The cache then fetches
// without one.
var ErrFleetDown = errors.New("leases of the fleet cannot be asked for")

// Held is the error of AcquireLease for a lease that another gateway has.
type Held struct {
	Holder string                          // argument for Open; empty if the gateway cannot be reached
	Wait   func(ctx context.Context) error // waits until the lease is released or has expired
}

// Error implements error.
func (h *Held) Error() string { return "lease is held by " + h.Holder }

// Meta is the metadata of a file by one request to a storage: the version or absence of the file,
// and the time of the request. Gateways send it to each other.
type Meta struct {
	Version Version
	Gone    bool          // the file does not exist; Version is not valid
	Checked time.Time     // time of the request to the storage; zero: not known
	TTL     time.Duration // of Gone; 0: NegativeTTL of Options; negative: none
}

// MetaOnly is the index, in the key of an entry, for the metadata of a file without bytes. It has
// the rank of segment 0.
const MetaOnly = -1

// Whole is the index, in the key of an entry, for all segments of a file of several segments that
// is verified first: one fill fetches them, verifies them together and then stores them one by one.
// The entry has the rank of segment 0.
const Whole = content.Whole

// entryAt returns the key of the entry that contains the byte at an offset of a file.
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
	Offset int64         // of the first missing byte in the segment
	MaxAge time.Duration // as in GetOptions
	// Copy: the gateway returns stored bytes only. Otherwise it fetches missing bytes.
	Copy bool
	// RequestedAs is Source.RequestedAs at the gateway that sends the request.
	RequestedAs string `json:"Asked,omitempty"`
	// Idle bounds the time in which the gateway sends no byte of its response; it is not sent.
	Idle time.Duration `json:"-"`
}

// Fleet is the access to the other gateways. Its methods are safe for concurrent use.
type Fleet interface {
	// Rank returns the names of the first n gateways for a key, the owner first. The name of this
	// gateway is "". Without peers the list is empty.
	Rank(key string, n int) []string
	// Open returns the result of PeerOpen at a peer. The body is nil for MetaOnly. With
	// ErrNotFound, Meta.TTL is set. A body that ends early, or with ctx, ends in an error other
	// than io.EOF; the caller closes it. A response without a byte for PeerRequest.Idle ends in an
	// error, and so do all of a peer without a sign of life, which gets no requests for some
	// seconds.
	Open(ctx context.Context, peer string, r PeerRequest) (Meta, io.ReadCloser, error)
	// Silence returns the time since the last sign of life of a peer: any bytes that it has sent.
	// The time in which it owes no response does not count. usual is the part of it that a living
	// peer may be silent for, by the time of its earlier replies.
	Silence(peer string) (silent, usual time.Duration)
	// AcquireLease takes the lease of a key without waiting for its holder. The error is *Held if
	// another gateway has it. The lease is renewed until release; the context lease ends if the
	// lease is lost. The first gateway in rank does not wait long for the reply either: other
	// gateways send their requests to it before they fetch. A lease that comes later is released.
	AcquireLease(ctx context.Context, key string, first bool) (lease context.Context, release func(), err error)
	// TrustedSince returns the time from which on metadata is used without a request to its source.
	// Older metadata may be older than a purge that this gateway has not applied. The zero time
	// means all of it: this gateway applies purges as they come.
	TrustedSince(now time.Time) time.Time
}
