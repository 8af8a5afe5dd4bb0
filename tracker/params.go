package tracker

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// Parameters are the settings that all storages of a cluster share.
type Parameters struct {
	// SyncMaxDelay is storage_sync_file_max_delay in whole seconds: an older file is on every
	// storage of its group.
	SyncMaxDelay time.Duration
	// UseStorageID is use_storage_id: file ids may contain storage ids instead of addresses.
	UseStorageID bool
	// SlotMaxSize is slot_max_size, the size of the largest trunk slot in bytes; 0 = unknown.
	SlotMaxSize int64
}

// maxSyncDelay bounds the sync delay in seconds: FastDFS keeps it in a signed number of 32 bits.
const maxSyncDelay = 1 << 31

// parseParameters reads the reply to fdfs.CmdParameters, lines of the form key=value. Unknown keys
// are ignored.
func parseParameters(text string) (Parameters, error) {
	raw := make(map[string]string)
	for line := range strings.Lines(text) {
		key, value, found := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); !found || key == "" {
			continue
		}
		raw[key] = strings.Trim(value, " \t\r\n\x00")
	}
	delay, err := strconv.ParseInt(raw["storage_sync_file_max_delay"], 10, 64)
	if err != nil || delay < 0 || delay >= maxSyncDelay {
		return Parameters{}, fmt.Errorf("%w: storage_sync_file_max_delay is %.40q, want a number of seconds",
			fdfs.ErrProtocol, raw["storage_sync_file_max_delay"])
	}
	slot, err := strconv.ParseInt(raw["slot_max_size"], 10, 64)
	if err != nil || slot < 0 {
		slot = 0 // trackers without support for trunk files do not send slot_max_size
	}
	return Parameters{SyncMaxDelay: time.Duration(delay) * time.Second, UseStorageID: isTrue(raw["use_storage_id"]),
		SlotMaxSize: slot}, nil
}

// isTrue parses a boolean as FastDFS does.
func isTrue(value string) bool {
	switch strings.ToLower(value) {
	case "true", "yes", "on", "1":
		return true
	}
	return false
}
