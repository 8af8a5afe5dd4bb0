package app

import (
	"log/slog"

	"fastdfs-gateway/internal/config"
)

// StorageIDs resolves storage ids by a configuration: its list, and the trackers, which are asked
// when the first id comes.
type StorageIDs struct {
	cfg       *config.Config
	upstreams *Upstreams // nil until the first id
}

// NewStorageIDs sends no request. cfg may be nil when Address is not called.
func NewStorageIDs(cfg *config.Config) *StorageIDs { return &StorageIDs{cfg: cfg} }

// Address returns host:port of a storage; empty where no list has its id.
func (s *StorageIDs) Address(id uint32) string {
	if s.upstreams == nil {
		upstreams, err := OpenUpstreams(s.cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			return ""
		}
		s.upstreams = upstreams
		s.upstreams.Await()
	}
	server, ok := s.upstreams.Sources.ByID(id)
	if !ok {
		return ""
	}
	return server.Addr()
}

// Close ends the clients.
func (s *StorageIDs) Close() {
	if s.upstreams != nil {
		s.upstreams.Close()
	}
}
