package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Ports inside the namespaces. Each host has separate addresses, so hosts share the port numbers.
const (
	trackerPort  = 22122
	storagePort  = 23000
	gatewayPort  = 8888
	httpPort     = 8890 // of the gateway that fetches by HTTP
	redirectPort = 8892 // of the gateway that redirects
	uncachedPort = 8894 // of the gateway without a cache
	adminAbove   = 1    // admin listeners are on the next port
)

func join(a netip.Addr, port int) string { return netip.AddrPortFrom(a, uint16(port)).String() }

// lines are the lines key=value of a configuration.
type lines []string

// with puts further lines of -set in place of those with the same key, and adds the others.
func (l lines) with(kind string, set []string) lines {
	for _, line := range set {
		rest, ours := strings.CutPrefix(line, kind+".")
		if !ours {
			continue
		}
		key, _, _ := strings.Cut(rest, "=")
		l = append(slices.DeleteFunc(slices.Clone(l), func(old string) bool { return strings.HasPrefix(old, key+"=") }),
			rest)
	}
	return l
}

func (l lines) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.Join(l, "\n")+"\n"), 0o644)
}

// common returns the keys of all programs of FastDFS. A version ignores keys that it does not know.
func (w *world) common(dir string) lines {
	l := lines{"disabled=false", "connect_timeout=5", "network_timeout=60", "base_path=" + dir, "log_level=info"}
	if w.s.ipv6 {
		l = append(l, "address_family=IPv6")
	}
	return l
}

func (w *world) trackerLines() lines {
	var l lines
	for _, t := range w.trackers {
		l = append(l, "tracker_server="+join(t.addr, trackerPort))
	}
	return l
}

// slotMax is the size in bytes of the largest packed file with its header: the default of FastDFS.
const slotMax = 16 << 20

// trackerConf returns the settings of trackers: as quick as FastDFS permits, and the default sizes
// of slots and trunk files.
func (w *world) trackerConf(dir string) lines {
	l := append(w.common(dir), "bind_addr=", fmt.Sprintf("port=%d", trackerPort), "max_connections=1024",
		"accept_threads=1",
		"work_threads=2", "min_buff_size=8KB", "max_buff_size=128KB", "store_lookup=0", "store_server=0",
		"store_path=0",
		"download_server=0", "reserved_storage_space=100MB", "allow_hosts=*", "sync_log_buff_interval=1",
		"check_active_interval=5",
		"thread_stack_size=256KB", "storage_ip_changed_auto_adjust=true", "storage_sync_file_max_delay=86400",
		"storage_sync_file_max_time=300", fmt.Sprintf("use_trunk_file=%v", w.s.trunk), "slot_min_size=256",
		"slot_max_size=16MB",
		"trunk_alloc_alignment_size=256", "trunk_free_space_merge=true", "delete_unused_trunk_files=false",
		"trunk_file_size=64MB",
		"trunk_create_file_advance=false", fmt.Sprintf("use_storage_id=%v", w.s.ids), "storage_ids_filename="+
			w.idsFile(),
		"store_slave_file_use_link=false", "use_connection_pool=true", "connection_pool_max_idle_time=3600")
	if w.s.ids {
		return append(l, "id_type_in_filename=id")
	}
	return append(l, "id_type_in_filename=ip")
}

// storageConf returns the settings of a storage. With the default number of threads the replication
// of FastDFS 6.16 stops after an appender was modified and truncated, hence sync_max_threads.
func (w *world) storageConf(n *node, dir string) lines {
	l := append(w.common(dir), "group_name="+n.group, "bind_addr=", "client_bind=true",
		fmt.Sprintf("port=%d", storagePort),
		"heart_beat_interval=1", "stat_report_interval=5", "max_connections=1024", "buff_size=256KB",
		"accept_threads=1",
		"work_threads=2", "disk_rw_separated=true", "disk_reader_threads=1", "disk_writer_threads=1",
		"sync_wait_msec=10",
		"sync_interval=0", "sync_max_threads=1", "sync_start_time=00:00", "sync_end_time=23:59",
		"write_mark_file_freq=1", "allow_hosts=*",
		"file_distribute_path_mode=0", "file_distribute_rotate_count=1", "sync_log_buff_interval=1",
		"sync_binlog_buff_interval=1",
		"sync_stat_file_interval=5", "thread_stack_size=512KB", "upload_priority=10", "check_file_duplicate=0",
		"keep_alive=0",
		"subdir_count_per_path=4", "use_connection_pool=true", "connection_pool_max_idle_time=3600")
	return append(append(l, n.pathLines()...), w.trackerLines()...)
}

// pathLines returns the store paths in the format that storages and the gateway read.
func (n *node) pathLines() lines {
	l := lines{fmt.Sprintf("store_path_count=%d", len(n.paths))}
	for i, path := range n.paths {
		l = append(l, fmt.Sprintf("store_path%d=%s", i, path))
	}
	return l
}

func (w *world) idsFile() string { return filepath.Join(w.dir, "storage_ids.conf") }

// writeIDs writes the storage ids with the present addresses of the storages: 100001 is s1.
func (w *world) writeIDs() error {
	var l lines
	for i, n := range w.storages {
		at := n.host.addr.String()
		if w.s.ipv6 {
			at = join(n.host.addr, storagePort)
		}
		l = append(l, fmt.Sprintf("%d %s %s", 100001+i, n.group, at))
	}
	return l.write(w.idsFile())
}

// moduleConf returns the keys of the module for a gateway. n is nil on a host without a store.
func (w *world) moduleConf(dir string, n *node, mode string) lines {
	l := append(lines{"base_path=" + dir, "connect_timeout=2", "network_timeout=30",
		"load_fdfs_parameters_from_tracker=true",
		"storage_sync_file_max_delay=86400", fmt.Sprintf("use_storage_id=%v", w.s.ids), "storage_ids_filename=" +
			w.idsFile(),
		fmt.Sprintf("storage_server_port=%d", storagePort), "url_have_group_name=true", "log_level=info",
		"log_filename=" + filepath.Join(dir, "module.log"), "response_mode=" + mode, "if_alias_prefix=",
		"flv_support=true",
		"flv_extension=flv", "group_count=0"}, w.trackerLines()...)
	if n == nil {
		l = append(l, "group_name=group1", "store_path_count=0")
	} else {
		l = append(append(l, "group_name="+n.group), n.pathLines()...)
	}
	return append(l, "http.default_content_type=application/octet-stream",
		"http.mime_types_filename="+filepath.Join(w.dir, "mime.types"), "http.anti_steal.check_token=false")
}

// gatewayConf adds the gateway's own sections. own are lines of [gateway].
func (w *world) gatewayConf(dir string, n *node, mode string, a netip.Addr, port int, own ...string) lines {
	memory := "64MB"
	if port == uncachedPort {
		memory = "0"
	}
	l := append(w.moduleConf(dir, n, mode), "[cache]", "memory_max="+memory, "[gateway]", "listen="+join(a, port),
		"admin_listen="+join(a, port+adminAbove), "x_cache=true")
	return append(l, own...).with("gateway", w.s.set)
}

// mimeTypes are the media types of the configuration. They are few, so that checks reach the table
// inside the gateway.
var mimeTypes = lines{"text/html html", "text/plain txt", "image/jpeg jpg", "image/png png", "video/mp4 mp4",
	"video/x-flv flv"}
