package fdfs

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// MaxStorageIDs bounds the list of storage ids.
const MaxStorageIDs = 1 << 16

// StorageID is one line of the list of storage ids, which the storages of a cluster may be named by instead of their addresses.
type StorageID struct {
	ID    uint32 // 1 to 16777215
	Group string
	Hosts []string // one or two addresses or host names of the same storage
	Port  int      // 0 = not named: the usual one of the group
}

// ParseStorageIDs reads one page of the answer to CmdStorageIDs:
//
//	offset  length  field
//	0       4       how many there are in all
//	4       4       how many follow
//	8       ...     that many lines, see ParseStorageIDLine
func ParseStorageIDs(body []byte) (total, count int, lines string, err error) {
	if len(body) < 8 {
		return 0, 0, "", fmt.Errorf("%w: a page of storage ids of %d bytes", ErrProtocol, len(body))
	}
	t, n := binary.BigEndian.Uint32(body), binary.BigEndian.Uint32(body[4:])
	if t > MaxStorageIDs || n > t || int(n) > len(body) {
		return 0, 0, "", fmt.Errorf("%w: %d of %d storage ids in %d bytes, at most %d are expected", ErrProtocol, n, t, len(body), MaxStorageIDs)
	}
	return int(t), int(n), string(body[8:]), nil
}

// ParseStorageIDLine reads a line in the form of storage_ids.conf:
//
//	<id> <group> <host>[:port] [options]
//
// with two addresses as a,b[:port] or [a,b]:port and IPv6 as [addr]:port. Options are left alone.
func ParseStorageIDLine(line string) (StorageID, error) {
	words := strings.Fields(line)
	if len(words) < 3 {
		return StorageID{}, fmt.Errorf("%w: %.80q is no line of storage ids: id, group and address are wanted", ErrProtocol, line)
	}
	id, err := strconv.ParseUint(words[0], 10, 24)
	if err != nil || id == 0 {
		return StorageID{}, fmt.Errorf("%w: %.20q is no storage id from 1 to %d", ErrProtocol, words[0], 1<<24-1)
	}
	hosts, port, ok := splitHosts(words[2])
	if !ok || !ValidGroup(words[1]) {
		return StorageID{}, fmt.Errorf("%w: storage id %d has the group %.20q and the address %.80q", ErrProtocol, id, words[1], words[2])
	}
	return StorageID{ID: uint32(id), Group: words[1], Hosts: hosts, Port: port}, nil
}

// splitHosts takes apart host[:port], a,b[:port] and [a,b]:port; the port is 0 where there is none.
func splitHosts(s string) (hosts []string, port int, ok bool) {
	list, text := s, ""
	if inner, bracketed := strings.CutPrefix(s, "["); bracketed {
		end := strings.IndexByte(inner, ']')
		if end < 0 || end+1 < len(inner) && inner[end+1] != ':' {
			return nil, 0, false
		}
		list, text = inner[:end], inner[end+1:]
	} else if _, err := netip.ParseAddr(s[strings.LastIndexByte(s, ',')+1:]); err != nil {
		// Only an IPv6 address without brackets has colons but no port.
		if colon := strings.LastIndexByte(s, ':'); colon >= 0 {
			list, text = s[:colon], s[colon:]
		}
	}
	if text != "" {
		n, err := strconv.ParseUint(text[1:], 10, 16)
		if err != nil || n == 0 {
			return nil, 0, false
		}
		port = int(n)
	}
	hosts = strings.Split(list, ",")
	if len(hosts) > 2 {
		return nil, 0, false
	}
	for _, h := range hosts {
		if !isHost(h) {
			return nil, 0, false
		}
	}
	return hosts, port, true
}

// isHost accepts an IP address or a host name of at most 253 characters.
func isHost(s string) bool {
	if _, ok := parseAddr(s); ok {
		return true
	}
	if s == "" || len(s) > 253 || s[0] == '-' || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		if class[s[i]]&isNameChar == 0 {
			return false
		}
	}
	return true
}
