package origin

import (
	"context"
	"io"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage"
)

// Wanted is a file that is wanted from other hosts.
type Wanted struct {
	ID     fdfs.FileID
	Target string // path and query for web servers, with redirect=1
	Port   int    // that the request came in on; 0 = none
	// Unchecked: whole content need not be compared with the CRC32 of the id, for the caller does
	// so.
	Unchecked bool
}

// Protocol fetches files from other hosts. It tries the servers in an order of its own choice,
// healthy ones first.
type Protocol interface {
	// Order puts the servers that have failed lately behind the others, without asking them.
	Order(servers []storage.Server) []storage.Server
	// Stat asks for size and time. It is storage.ErrNotFound when no server has the file, and
	// another error when it cannot be told.
	Stat(ctx context.Context, w Wanted, servers []storage.Server) (storage.Info, error)
	// Open fetches length bytes (more than 0) from offset, of the version that info describes. A
	// stream that ends before that ends in an error.
	Open(ctx context.Context, w Wanted, info storage.Info, offset, length int64,
		servers []storage.Server) (io.ReadCloser, error)
}

// FastDFS fetches by the FastDFS protocol.
type FastDFS struct{ Client *storage.Client }

var _ Protocol = FastDFS{}

// Order implements Protocol.
func (o FastDFS) Order(servers []storage.Server) []storage.Server {
	return o.Client.Order(servers)
}

// Stat implements Protocol.
func (o FastDFS) Stat(ctx context.Context, w Wanted, servers []storage.Server) (storage.Info, error) {
	return o.Client.Stat(ctx, w.ID, servers)
}

// Open implements Protocol.
func (o FastDFS) Open(ctx context.Context, w Wanted, info storage.Info, offset, length int64,
	servers []storage.Server) (io.ReadCloser, error) {
	open := o.Client.Open
	if w.Unchecked {
		open = o.Client.OpenUnchecked
	}
	stream, err := open(ctx, w.ID, info, offset, length, servers)
	if err != nil {
		return nil, err // not a Stream that is nil
	}
	return stream, nil
}
