package config

import (
	"strconv"
	"strings"
)

// maxStorageID is the largest id that fits into the three bytes which tell an
// id from an address in a file id.
const maxStorageID = 1<<24 - 1

// maxStorageIDs bounds the list.
const maxStorageIDs = 1 << 16

// parseStorageIDs reads storage_ids.conf. A line is
//
//	<id> <group> <host>[:port] [options]     # begins a comment line
//
// with two addresses as a,b or [a,b]:port, IPv6 as [addr]:port, and the option
// rw=both|read|write|none (both). Other options are left alone. Lines that are
// wrong are left out and given as the second result.
func parseStorageIDs(data string) ([]StorageID, []badLine) {
	var ids []StorageID
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
		if fault == "" && len(ids) >= maxStorageIDs {
			return ids, append(wrong, badLine{n, "more than " + strconv.Itoa(maxStorageIDs) + " storage ids"})
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
func parseStorageID(line string) (id StorageID, fault string) {
	words := strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(blanks, c) })
	if len(words) < 3 {
		return id, "a line needs an id, a group and an address"
	}
	n, err := strconv.ParseUint(words[0], 10, 32)
	if err != nil || n < 1 || n > maxStorageID {
		return id, shown(words[0]) + " is no storage id from 1 to " + strconv.Itoa(maxStorageID)
	}
	if !isGroupName(words[1]) {
		return id, shown(words[1]) + " is no name of a group"
	}
	hosts, port, ok := splitServer(words[2])
	if !ok {
		return id, shown(words[2]) + " is no address of a storage"
	}
	mode := "both"
	for _, option := range words[3:] {
		value, isMode := strings.CutPrefix(option, "rw=")
		if !isMode {
			continue
		}
		switch value {
		case "both", "read", "write", "none":
			mode = value
		default:
			return id, shown(option) + " is not rw=both, rw=read, rw=write or rw=none"
		}
	}
	return StorageID{ID: uint32(n), Group: words[1], Hosts: hosts, Port: port, Mode: mode}, ""
}
