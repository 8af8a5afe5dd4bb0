package cache

import (
	"context"
	"io"
	"time"

	"fastdfs-gateway/internal/fdfs/checksum"
)

// Source fetches one file from other hosts. It is safe for concurrent use, also after the end of
// the request that brought it. Its methods bound their waits: a silent storage is an error.
type Source interface {
	// Name is the storage or group whose fetches are limited together.
	Name() string
	// Unlisted reports whether only a file id names the source: then its share of the memory for
	// fetches is smaller.
	Unlisted() bool
	// Stat returns the version. The error is ErrNotFound if the file does not exist. known is the
	// version of a variant that a gateway has; zero = none. The version of another one is known
	// from making it: then the error is ErrChanged, and Fetch makes it.
	Stat(ctx context.Context, known Version) (Version, error)
	// Fetch returns length bytes of the file from offset on, fewer at its end, and their version.
	// want is the expected version; nil = any. A stream that ends early, or with ctx, ends in an
	// error other than io.EOF. The caller closes it.
	Fetch(ctx context.Context, want *Version, offset, length int64) (Version, io.ReadCloser, error)
	// NegativeTTL is the TTL of ErrNotFound: 0 is NegativeTTL of Options; with a negative one
	// ErrNotFound is not stored.
	NegativeTTL() time.Duration
	// Exclude excludes a server of Senders for this file, in all its Sources: Fetch asks it only if
	// all others are excluded too.
	Exclude(server string)
	// Recheck reads a whole file again whose CRC32, sum, is not that of the version, first from
	// servers that are no senders; "" is an unknown sender. The error is nil if the content is
	// right, see client.Client.Recheck: again is then its sum, in both variants if it was read
	// again. Otherwise the servers with wrong content are excluded.
	Recheck(ctx context.Context, v Version, sum checksum.Sum, senders []string) (again checksum.Sum, err error)
	// RequestedAs is the name by which the file was requested; empty: the name in the key of the
	// entry. A gateway that fetches the file for another one sends this name to storages too.
	RequestedAs() string
}

// Senders is a body of Fetch that reports the servers that have sent it. The senders of other
// bodies are unknown.
type Senders interface{ Senders() []string }
