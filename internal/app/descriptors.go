package app

import (
	"syscall"

	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"
)

// The limit on open files (RLIMIT_NOFILE) is divided among connections and files that are kept
// open. The Go runtime has raised the soft limit to the hard one before main begins.

// reserved is the number of descriptors for listeners, logs, store paths and other hosts, and for
// admin connections.
const reserved = 64 + admin.MaxConnections

// OpenFiles returns the limit of this process; 0 after an error.
func OpenFiles() uint64 {
	var limit syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return limit.Cur
}

// spareFiles returns the number of files that a limit allows besides the reserved ones.
func spareFiles(limit uint64) int { return max(int(min(limit, 1<<31))-reserved, 0) }

// defaultConnections is the default of max_connections. enoughConnections are enough where it is
// not set: they carry a busy host, and an operator who needs more sets it.
const (
	defaultConnections = 100_000
	enoughConnections  = 4096
)

// MaxConnections returns max_connections, or less if a limit on open files does not allow as many
// besides the files that are kept open: each connection may be sending a file that is not kept, and
// a quarter as many further connections may be open until they are rejected.
func MaxConnections(cfg *config.Config, limit uint64) int {
	connections, kept, spare := cfg.Gateway.MaxConnections, cfg.OpenFileCache.MaxFiles, spareFiles(limit)
	if limit == 0 {
		return connections
	}
	return min(max((spare-min(kept, spare/4))*4/9, 1), connections)
}

// FewConnections returns a sentence about a limit on open files that allows too few connections,
// with their number. few is false if they are enough.
func FewConnections(cfg *config.Config, limit uint64) (text i18n.Text, few bool) {
	room, wanted := MaxConnections(cfg, limit), cfg.Gateway.MaxConnections
	if room == wanted || wanted == defaultConnections && room >= enoughConnections {
		return text, false
	}
	return i18n.Sprintf("the limit on open files (ulimit -n, LimitNOFILE=) allows %d of max_connections = %d",
		room, wanted), true
}
