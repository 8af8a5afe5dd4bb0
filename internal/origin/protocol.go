package origin

import (
	"context"
	"io"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/storage/client"
)

// Protocol fetches files from other hosts. It chooses the order in which it tries the servers,
// healthy ones first.
type Protocol interface {
	// Order puts the servers that have failed lately behind the others, without asking them.
	Order(servers []client.Server) []client.Server
	// AreDown reports whether the last request to each of the servers has failed.
	AreDown(servers []client.Server) bool
	// Stat returns the version, as the part that is the whole file. The error is fdfs.ErrNoFile if
	// no server has the file, and another one if a server could not be asked.
	Stat(ctx context.Context, r client.FetchRequest, servers []client.Server) (client.Part, error)
	// Open fetches a part that is not empty. A stream that ends early ends in an error. It reports
	// its Senders if it has the method of client.Stream; otherwise they are unknown.
	Open(ctx context.Context, r client.FetchRequest, part client.Part, servers []client.Server) (io.ReadCloser, error)
	// Exclude excludes a server for one file: Open does not ask it as long as another server is not
	// excluded.
	Exclude(id fdfs.FileID, server client.Server)
	// Recheck is that of client.Client.
	Recheck(ctx context.Context, r client.FetchRequest, v content.Version, first checksum.Sum, senders,
		servers []client.Server) (again checksum.Sum, err error)
}

// Storages is the Protocol of a client.Client.
type Storages struct {
	*client.Client
	Web bool // the client is one of NewHTTPClient, which asks for targets; others ask for ids
}

var _ Protocol = Storages{}

// Open implements Protocol.
func (s Storages) Open(ctx context.Context, r client.FetchRequest, part client.Part,
	servers []client.Server) (io.ReadCloser, error) {
	stream, err := s.Client.Open(ctx, r, part, servers)
	if err != nil {
		return nil, err // not an interface with a nil *client.Stream
	}
	return stream, nil
}
