package origin

import (
	"context"
	"io"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/storage/client"
)

// Protocol fetches files from other hosts. It tries the servers in an order of its own choice,
// healthy ones first.
type Protocol interface {
	// Order puts the servers that have failed lately behind the others, without asking them.
	Order(servers []client.Server) []client.Server
	// Stat asks for size and time. It is fdfs.ErrNoFile when no server has the file, and
	// another error when it cannot be told.
	Stat(ctx context.Context, r client.FetchRequest, servers []client.Server) (client.Info, error)
	// Open fetches length bytes (more than 0) from offset, of the version that info describes. A
	// stream that ends before that ends in an error. It reports its Senders, as client.Stream
	// does; those of others are unknown.
	Open(ctx context.Context, r client.FetchRequest, info client.Info, offset, length int64,
		servers []client.Server) (io.ReadCloser, error)
	// Exclude excludes a server for one file: Open does not ask it while there is another one.
	Exclude(id fdfs.FileID, server client.Server)
	// Recheck is that of client.Client.
	Recheck(ctx context.Context, r client.FetchRequest, info client.Info, first checksum.Sum, senders,
		servers []client.Server) (again checksum.Sum, err error)
}

// Storages is the Protocol of a client.Client.
type Storages struct {
	*client.Client
	Web bool // the client is one of NewHTTPClient, which asks for targets; others ask for ids
}

var _ Protocol = Storages{}

// Open implements Protocol.
func (s Storages) Open(ctx context.Context, r client.FetchRequest, info client.Info, offset, length int64,
	servers []client.Server) (io.ReadCloser, error) {
	stream, err := s.Client.Open(ctx, r, info, offset, length, servers)
	if err != nil {
		return nil, err // no Stream that is nil
	}
	return stream, nil
}
