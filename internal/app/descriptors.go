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

// Defaults of max_connections and max_files. enough of either is enough where it is not set: they
// carry a busy host, and an operator who needs more sets it.
const (
	defaultConnections = 100_000
	defaultFiles       = 10_000
	enough             = 4096
)

// MaxConnections returns max_connections, or less if a limit on open files does not allow as many
// besides the files that are kept open: each connection may be sending a file that is not kept, and
// a quarter as many further connections may be open until they are rejected.
func MaxConnections(cfg *config.Config, limit uint64) int {
	if limit == 0 {
		return cfg.Gateway.MaxConnections
	}
	return min(max((spareFiles(limit)-maxFiles(cfg, limit))*4/9, 1), cfg.Gateway.MaxConnections)
}

// maxFiles returns max_files, or less if a limit on open files does not allow as many.
func maxFiles(cfg *config.Config, limit uint64) int {
	return min(cfg.OpenFileCache.MaxFiles, spareFiles(limit)/4)
}

// FewOpenFiles returns a sentence for each of max_connections and max_files of which a limit on
// open files allows too few.
func FewOpenFiles(cfg *config.Config, limit uint64) (list []i18n.Text) {
	add := func(key string, room, wanted, usual int) {
		if limit > 0 && room < wanted && (wanted != usual || room < enough) {
			list = append(list, i18n.Sprintf("the limit on open files (ulimit -n, LimitNOFILE=) allows %d of %s = %d",
				room, key, wanted))
		}
	}
	add("max_connections", MaxConnections(cfg, limit), cfg.Gateway.MaxConnections, defaultConnections)
	add("max_files", maxFiles(cfg, limit), cfg.OpenFileCache.MaxFiles, defaultFiles)
	return list
}
