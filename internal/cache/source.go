package cache

import (
	"context"
	"io"
	"time"

	"fastdfs-gateway/internal/fdfs/checksum"
)

// Source fetches one file from other hosts. It is safe for concurrent use, also after the request
// that brought it. It bounds its own waiting: a silent storage is an error.
type Source interface {
	// Name is the storage or group for the limits on fetches.
	Name() string
	// Unlisted reports whether only a file id names the source: its share of the memory for fetches
	// is smaller.
	Unlisted() bool
	// Stat asks for the version. The error is ErrNotFound if there is no such file.
	Stat(ctx context.Context) (Version, error)
	// Fetch returns length bytes of the file from offset on, fewer at its end, and their version.
	// want is the version that they must have; nil if any. A stream that ends early, or with ctx,
	// ends in an error other than io.EOF. The caller closes it.
	Fetch(ctx context.Context, want *Version, offset, length int64) (Version, io.ReadCloser, error)
	// NegativeTTL is the TTL of ErrNotFound: 0 that of Options; negative: none, it is not stored.
	NegativeTTL() time.Duration
	// Exclude excludes a server of Senders for this file, in all its Sources: Fetch asks it only if
	// all others are excluded too.
	Exclude(server string)
	// Recheck reads a whole file again whose CRC32, sum, is not that of the version, from other
	// servers than the senders; "" is an unknown one. The error is nil if they agree on the
	// content: again is its sum in all variants. Otherwise the servers with wrong content are
	// excluded.
	Recheck(ctx context.Context, v Version, sum checksum.Sum, senders []string) (again checksum.Sum, err error)
	// RequestedAs is the name by which the file was requested; empty: that in the key of the entry.
	// The gateway that fetches it for another one asks storages by that name too.
	RequestedAs() string
}

// Senders is a body of Fetch that reports the servers that have sent it. Those of others are
// unknown.
type Senders interface{ Senders() []string }
