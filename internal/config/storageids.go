package config

import (
	"strconv"
	"strings"

	"fastdfs-gateway/internal/fdfs"
)

// parseStorageIDs reads storage_ids.conf: lines for fdfs.ParseStorageIDLine, where # begins a
// comment line and the option rw=both|read|write|none is checked. Wrong lines are left out and
// returned as the second result.
func parseStorageIDs(data string) ([]fdfs.StorageID, []badLine) {
	var ids []fdfs.StorageID
	var wrong []badLine
	seen := map[uint32]int{}
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(data, "\xef\xbb\xbf")) {
		n++
		line = strings.Trim(line, blanks+"\n")
		if line == "" || line[0] == '#' {
			continue
		}
		id, fault := parseStorageID(line)
		if first, twice := seen[id.ID]; fault == "" && twice {
			fault = "the id stands already in line " + strconv.Itoa(first)
		}
		if fault == "" && len(ids) >= fdfs.MaxStorageIDs {
			return ids, append(wrong, badLine{n, "more than " + strconv.Itoa(fdfs.MaxStorageIDs) + " storage ids"})
		}
		if fault != "" {
			wrong = append(wrong, badLine{n, fault})
			continue
		}
		seen[id.ID] = n
		ids = append(ids, id)
	}
	return ids, wrong
}

// parseStorageID reads one line; fault says what is wrong with it.
func parseStorageID(line string) (id fdfs.StorageID, fault string) {
	id, err := fdfs.ParseStorageIDLine(line)
	if err != nil {
		return id, err.Error()
	}
	for _, option := range strings.Fields(line)[3:] {
		switch mode, isMode := strings.CutPrefix(option, "rw="); {
		case !isMode, mode == "both", mode == "read", mode == "write", mode == "none":
		default:
			return id, shown(option) + " is not rw=both, rw=read, rw=write or rw=none"
		}
	}
	return id, ""
}
