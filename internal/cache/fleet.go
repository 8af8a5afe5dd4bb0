package cache

import (
	"context"
	"errors"
	"io"
	"time"
)

// Errors that a Fleet gives.
var (
	// ErrFleetDown: the fleet cannot be asked now. The cache goes on by itself.
	ErrFleetDown = errors.New("the other gateways cannot be asked")
	// ErrLost: a lease was lost before something was published under it, and it was not published.
	ErrLost = errors.New("lease was lost")
)

// Held is the error for a lease that another gateway has.
type Held struct {
	Holder string // where OpenPeer reaches it; empty when it cannot be reached
}

// Error implements error.
func (h *Held) Error() string { return "lease is held by " + h.Holder }

// Meta is what is known of a file.
type Meta struct {
	Version Version
	Gone    bool          // there is no such file; Version says nothing
	Checked time.Time     // when a storage has said so, by the clock of the gateway that asked it
	Took    time.Duration // until it had said so
}

// Location says which gateway has a segment.
type Location struct {
	Holder  string  // as in Held; the Fleet sets it to this gateway when it publishes
	Version Version // of the file
}

// Fleet is what the cache asks of the other gateways. Keys of leases and locations are those of SegmentKey.String for a segment and
// the file itself for its Meta.
//
// Every method may be called from many goroutines. Errors other than *Held and those of the context mean that the fleet is in
// trouble, and the cache goes on without it, so they should come fast: a Fleet has a circuit breaker.
type Fleet interface {
	// Lead takes the lease of a key without waiting for it. It is a *Held error when another gateway has it. The lease is renewed
	// until Release.
	Lead(ctx context.Context, key string) (Lease, error)
	// Wait waits until the lease of a key is free: released or expired. It returns at once when it is.
	Wait(ctx context.Context, key string) error
	// Meta is what a gateway has published about a file; false when there is nothing.
	Meta(ctx context.Context, file string) (Meta, bool, error)
	// Location is what a gateway has published about a segment; false when there is nothing.
	Location(ctx context.Context, key string) (Location, bool, error)
	// OpenPeer reads a segment from an offset in it on to its end, at another gateway that has it or is filling it, as PeerOpen there
	// gives it. want is the version; nil when it is not known. A stream that breaks ends in an error other than io.EOF. The end of
	// ctx ends OpenPeer and the reads. The caller closes the stream.
	OpenPeer(ctx context.Context, holder string, key SegmentKey, want *Version, offset int64) (Version, io.ReadCloser, error)
}

// Lease is the right to fetch something for the whole fleet. What is published under one is compared with its fencing number, and
// is ErrLost when another gateway has had the lease since.
type Lease interface {
	// Context ends when the lease was lost.
	Context() context.Context
	// PublishMeta tells the other gateways about a file.
	PublishMeta(ctx context.Context, file string, m Meta) error
	// PublishLocation tells them that this one has a segment.
	PublishLocation(ctx context.Context, key string, l Location) error
	// Release gives the lease back. It does not wait long.
	Release()
}

// Alone is the Fleet of a gateway that is alone: it always leads, and nobody knows more.
type Alone struct{}

var _ Fleet = Alone{}

// Lead implements Fleet.
func (Alone) Lead(context.Context, string) (Lease, error) { return aloneLease{}, nil }

// Wait implements Fleet.
func (Alone) Wait(context.Context, string) error { return nil }

// Meta implements Fleet.
func (Alone) Meta(context.Context, string) (Meta, bool, error) { return Meta{}, false, nil }

// Location implements Fleet.
func (Alone) Location(context.Context, string) (Location, bool, error) {
	return Location{}, false, nil
}

// OpenPeer implements Fleet.
func (Alone) OpenPeer(context.Context, string, SegmentKey, *Version, int64) (Version, io.ReadCloser, error) {
	return Version{}, nil, ErrFleetDown
}

type aloneLease struct{}

var _ Lease = aloneLease{}

func (aloneLease) Context() context.Context                                { return context.Background() }
func (aloneLease) PublishMeta(context.Context, string, Meta) error         { return nil }
func (aloneLease) PublishLocation(context.Context, string, Location) error { return nil }
func (aloneLease) Release()                                                {}
