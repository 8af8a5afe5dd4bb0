package app

import (
	"log/slog"

	"fastdfs-gateway/internal/config"
)

// StorageIDs resolves storage ids by a configuration: its list, and the trackers, which are asked
// when the first id comes.
type StorageIDs struct {
	cfg   *config.Config
	other *remote
}

// NewStorageIDs asks nothing yet. cfg may be nil when Address is not called.
func NewStorageIDs(cfg *config.Config) *StorageIDs { return &StorageIDs{cfg: cfg} }

// Address is where a storage is reached, host:port; empty where no list has its id.
func (s *StorageIDs) Address(id uint32) string {
	if s.other == nil {
		settings, err := settingsOf(s.cfg)
		if err != nil {
			return ""
		}
		s.other = openRemote(settings, slog.New(slog.DiscardHandler))
		s.other.await()
	}
	server, ok := s.other.options.Sources.ByID(id)
	if !ok {
		return ""
	}
	return server.Addr()
}

// Close ends the clients.
func (s *StorageIDs) Close() {
	if s.other != nil {
		s.other.close()
	}
}
