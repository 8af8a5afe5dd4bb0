package cache

import (
	"context"
	"io"
	"time"

	"fastdfs-gateway/internal/fdfs/checksum"
)

// Source fetches one file from where it is. It is used by several goroutines, and longer than the
// request that it was given with. It bounds its own waiting: a storage that says nothing becomes an
// error.
type Source interface {
	// Name says whose load it is, for the limit on fetches: a storage, or a group.
	Name() string
	// Unlisted reports that only a file id names the source: it gets a smaller share of the memory
	// for fetches.
	Unlisted() bool
	// Stat asks for the version. It is ErrNotFound when there is no such file.
	Stat(ctx context.Context) (Version, error)
	// Fetch gets bytes of the file, length of them from offset on or as many as there are: none
	// behind its end. want is the version that they have to be of; nil when it is not known. The
	// version that they are of comes with them. The stream ends in an error other than io.EOF when
	// it ends early, and with ctx. The caller closes it.
	Fetch(ctx context.Context, want *Version, offset, length int64) (Version, io.ReadCloser, error)
	// NegativeTTL is how long ErrNotFound holds: 0 as long as Options say; negative: it may be over
	// at any moment, and is not kept.
	NegativeTTL() time.Duration
	// Exclude excludes a server, as Senders names it, for this file: Fetch asks it only if all
	// others are excluded too. All Sources of the file know that.
	Exclude(server string)
	// Recheck reads the whole file again, since its CRC32, of which sum is one, is not that of the
	// version, and compares it with that of other servers than the senders; "" is an unknown one.
	// The error is nil if the content is that of the file all the same, and again has its sum in
	// all variants. Otherwise the servers that have wrong content are excluded.
	Recheck(ctx context.Context, v Version, sum checksum.Sum, senders []string) (again checksum.Sum, err error)
}

// Requested is a Source that reports the name by which the file was requested. The gateway that
// fetches it for another one asks storages by that name too. Empty: by the name in the key of the
// entry.
type Requested interface{ RequestedAs() string }

// requestedAs returns the RequestedAs of a Source.
func requestedAs(src Source) string {
	if a, ok := src.(Requested); ok {
		return a.RequestedAs()
	}
	return ""
}

// Senders is a body of Fetch that reports the servers that have sent it. Those of others are
// unknown.
type Senders interface{ Senders() []string }
