package fdfstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// defaultParameters are the lines of a tracker 6.16 in its order; the first two and the
// size of addresses follow from Options.
const defaultParameters = `use_storage_id=%d
id_type_in_filename=%s
trust_storage_server_id=1
response_ip_addr_size=%d
storage_ip_changed_auto_adjust=1
storage_sync_file_max_delay=86400
store_path=0
reserved_storage_space=1024MB
use_trunk_file=1
slot_min_size=256
slot_max_size=524288
trunk_alloc_alignment_size=256
trunk_file_size=4194304
trunk_create_file_advance=0
trunk_create_file_time_base=02:00
trunk_create_file_interval=86400
trunk_create_file_space_threshold=0
trunk_init_check_occupying=0
trunk_init_reload_from_binlog=0
trunk_free_space_merge=1
delete_unused_trunk_files=0
trunk_compress_binlog_min_interval=0
trunk_compress_binlog_interval=0
trunk_compress_binlog_time_base=03:00
trunk_binlog_max_backups=0
store_slave_file_use_link=0
`

// parameters returns the text of the reply to CmdParameters: key=value lines.
func parameters(o Options) string {
	useIDs, idType := 0, "ip"
	if o.UseStorageIDs {
		useIDs, idType = 1, "id"
	}
	text := fmt.Sprintf(defaultParameters, useIDs, idType, o.AddressSize+1)
	for _, key := range slices.Sorted(maps.Keys(o.Parameters)) {
		text = setLine(text, key, o.Parameters[key])
	}
	return text
}

// setLine replaces the line of key, or adds one.
func setLine(text, key, value string) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, key+"=") {
			lines[i] = key + "=" + value + "\n"
			return strings.Join(lines, "")
		}
	}
	return text + key + "=" + value + "\n"
}
