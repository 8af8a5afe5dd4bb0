// Package origintest has an implementation of origin.Protocol that other ones embed in tests:
//
//	type oneFile struct {
//		origintest.Unreachable
//		content string
//	}
//
//	func (o *oneFile) Open(...) (io.ReadCloser, error) { ... }
package origintest

import (
	"context"
	"io"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/storage/client"
)

// Unreachable implements origin.Protocol for storages that cannot be reached.
type Unreachable struct{}

// Order changes nothing.
func (Unreachable) Order(servers []client.Server) []client.Server { return servers }

// AreDown returns true.
func (Unreachable) AreDown([]client.Server) bool { return true }

// Stat fails.
func (Unreachable) Stat(context.Context, client.FetchRequest, []client.Server) (client.Part, error) {
	return client.Part{}, client.ErrNoSource
}

// Open fails.
func (Unreachable) Open(context.Context, client.FetchRequest, client.Part, []client.Server) (io.ReadCloser, error) {
	return nil, client.ErrNoSource
}

// Exclude does nothing.
func (Unreachable) Exclude(fdfs.FileID, client.Server) {}

// Recheck returns the first sum, as a server that sends the same content again.
func (Unreachable) Recheck(_ context.Context, _ client.FetchRequest, _ content.Version, first checksum.Sum, _,
	_ []client.Server) (checksum.Sum, error) {
	return first, nil
}
