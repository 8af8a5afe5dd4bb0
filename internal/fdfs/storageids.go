package fdfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxStorageIDs bounds the list of storage ids.
const MaxStorageIDs = 1 << 16

// StorageID is one line of the list of storage ids. File ids may contain storage ids in place of
// the addresses of storages.
type StorageID struct {
	ID    uint32 // 1 to 16777215
	Group string
	Hosts []string // one or two addresses or host names of the same storage
	Port  int      // 0 = not given: the port of the group's storages
}

// ParseStorageIDs parses one page of the reply to CmdStorageIDs:
//
//	offset  length  field
//	0       4       number of all lines
//	4       4       number of lines in this page
//	8       ...     lines, see ParseStorageIDLine
func ParseStorageIDs(body []byte) (total int, page []StorageID, err error) {
	if len(body) < 8 {
		return 0, nil, fmt.Errorf("%w: a page of storage ids of %d bytes", ErrProtocol, len(body))
	}
	t, n := binary.BigEndian.Uint32(body), binary.BigEndian.Uint32(body[4:])
	if t > MaxStorageIDs || n > t {
		return 0, nil, fmt.Errorf("%w: %d of %d storage ids, at most %d are expected", ErrProtocol, n, t, MaxStorageIDs)
	}
	for line := range strings.Lines(string(body[8:])) {
		if line = strings.Trim(line, " \t\r\n\x00"); line == "" {
			continue
		}
		id, err := ParseStorageIDLine(line)
		if err != nil {
			return 0, nil, fmt.Errorf("%w: storage ids: %w", ErrProtocol, err)
		}
		page = append(page, id)
	}
	if len(page) != int(n) {
		return 0, nil, fmt.Errorf("%w: %d lines of storage ids where %d were promised", ErrProtocol, len(page), n)
	}
	return int(t), page, nil
}

// ParseStorageIDLine parses a line in the form of storage_ids.conf:
//
//	<id> <group> <host>[:port] [options]
//
// See ParseHosts for two addresses and for IPv6. Options are ignored. An address with a zone is
// rejected, since it is valid on one host only.
func ParseStorageIDLine(line string) (StorageID, error) {
	words := strings.Fields(line)
	if len(words) < 3 {
		return StorageID{}, errors.New("a line needs an id, a group and an address")
	}
	id, err := strconv.ParseUint(words[0], 10, 24)
	if err != nil || id == 0 {
		return StorageID{}, fmt.Errorf("%.80q is no storage id from 1 to %d", words[0], 1<<24-1)
	}
	if !ValidGroup(words[1]) {
		return StorageID{}, fmt.Errorf("%.80q is no name of a group", words[1])
	}
	hosts, port, ok := ParseHosts(words[2])
	if !ok || strings.Contains(words[2], "%") {
		return StorageID{}, fmt.Errorf("%.80q is no address of a storage", words[2])
	}
	return StorageID{ID: uint32(id), Group: words[1], Hosts: hosts, Port: port}, nil
}
