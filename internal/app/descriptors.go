package app

import (
	"context"
	"log/slog"
	"syscall"

	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/config"
)

// The limit on open files (RLIMIT_NOFILE) is divided among connections and files that are kept
// open. The Go runtime has raised the soft limit to the hard one before main begins.

// reserved is the number of descriptors for listeners, logs, store paths and other hosts, and for
// admin connections.
const reserved = 64 + admin.MaxConnections

// spareFiles returns the number of files that may be open besides the reserved ones; 0 after an
// error.
func spareFiles() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	return max(int(min(limit.Cur, 1<<31))-reserved, 0), nil
}

// DefaultConnections is the default of max_connections.
const DefaultConnections = 100_000

// MaxConnections returns max_connections, or less if the limit on open files does not allow as many
// besides the files that are kept open: each connection may be sending a file that is not kept, and
// a quarter as many further connections may be open until they are rejected.
func MaxConnections(cfg *config.Config, log *slog.Logger) int {
	connections, kept := cfg.Gateway.MaxConnections, cfg.OpenFileCache.MaxFiles
	spare, err := spareFiles()
	if err != nil {
		log.Warn("cannot tell how many files may be open", "err", err)
		return connections
	}
	room := (spare - min(kept, spare/4)) * 4 / 9
	if room >= connections {
		return connections
	}
	room = max(room, 1)
	level := slog.LevelWarn
	if connections == DefaultConnections {
		level = slog.LevelInfo
	}
	log.Log(context.Background(), level,
		"max_connections is more than the limit on open files allows; raise it (ulimit -n, LimitNOFILE=)",
		"max_connections", connections, "open_files_limit", spare+reserved, "used_instead", room)
	return room
}
