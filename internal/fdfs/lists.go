package fdfs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The lists of a tracker are sequences of records of one size. The sizes have grown with the
// versions of FastDFS, and a reply does not contain the version. All fields of GroupInfo and
// StorageInfo are read from records of the current version, all but the port (and of 918 bytes the
// heartbeat) from storages of two older versions. From other sizes only the fields at the beginning
// are read, which have kept their offsets.

// GroupInfo is a group in a tracker's list.
type GroupInfo struct {
	Name string
	Port int // of its storages; 0 = unknown
}

// A record of the reply to CmdListGroups (6.13 and later, 113 bytes):
//
//	offset  length  field
//	0       17      name, NUL padded
//	17      8 each  total MB, free MB, reserved MB, free MB in trunk files
//	49      8       number of storages
//	57      8       port of the storages
//	65      8 each  readable and writable storages, current write server, store paths,
//	                sub directories, current trunk file
const (
	groupRecord    = 113
	groupNameField = 17
	groupPortAt    = 57
	smallestGroup  = 65  // bounds for other versions
	largestGroup   = 256 // their records also have numbers of 8 bytes after the name
)

// ParseGroups parses the reply to CmdListGroups. The list is empty if the tracker has no groups.
func ParseGroups(body []byte) ([]GroupInfo, error) {
	groups := parseRecords(body, groupRecord, groupRecord, parseGroup)
	if groups == nil {
		groups = parseRecords(body, smallestGroup, largestGroup, parseGroup)
	}
	if groups == nil && len(body) > 0 {
		return nil, fmt.Errorf("%w: %d bytes are no list of groups", ErrProtocol, len(body))
	}
	return groups, nil
}

func parseGroup(record []byte) (GroupInfo, bool) {
	name, ok := cutPadded(record[:groupNameField])
	g := GroupInfo{Name: name}
	if !ok || !ValidGroup(name) || (len(record)-groupNameField)%8 != 0 {
		return g, false
	}
	if len(record) != groupRecord {
		return g, true
	}
	port := binary.BigEndian.Uint64(record[groupPortAt:])
	g.Port = int(port)
	return g, port < 1<<16
}

// Values of StorageInfo.Status, among others.
const (
	StatusIPChanged = 3 // the storage has another address now
	StatusDeleted   = 4 // removed from the group
	StatusOnline    = 6 // has come back, and is not active yet
	StatusActive    = 7 // serves files
)

// StorageInfo is a storage in a tracker's list.
type StorageInfo struct {
	Status byte       // StatusActive or another one
	ID     uint32     // storage id; 0 = the cluster has none
	Addr   netip.Addr // invalid if the tracker does not have it yet
	Port   int        // 0 = unknown: that of the group

	Version   string // of the storage server, printable ASCII; empty = unknown
	HeartBeat int64  // last one by the tracker's clock, in unix seconds; 0 = unknown
}

// A record of the reply to CmdListStorages (6.13 and later, 487 bytes, or 517 with long
// addresses):
//
//	offset  length    field
//	0       1         status
//	1       1         read and write mode; older trackers do not send it
//	2       16        storage id, or the address if there are none, NUL padded text
//	18      16 or 46  address, NUL padded text
//	+       16        id or address of the storage that this one was filled from
//	+       8         version
//	+       8 each    time of joining and of starting, total MB, free MB, reserved MB,
//	                  upload priority, store paths, sub directories, current write path
//	130     8         port (160 with long addresses)
//	+       ...       counters
//	-9      8         time of the last heartbeat
//	-1      1         1 if the storage allocates trunk slots
//
// A record of 5.x (612 bytes) or of older 6.x (918 bytes):
//
//	offset  length    field
//	0       1         status
//	1       16        storage id, or the address if there are none, NUL padded text
//	17      16        address, NUL padded text
//	177     6         version
//	603     8         time of the last heartbeat (612 bytes)
var storageForms = []storageForm{
	{smallest: 487, largest: 487, id: 2, address: 16, version: 50, versionSize: 8, heartBeat: 478, port: 130},
	{smallest: 517, largest: 517, id: 2, address: 46, version: 80, versionSize: 8, heartBeat: 508, port: 160},
	{smallest: 612, largest: 612, id: 1, address: 16, version: 177, versionSize: 6, heartBeat: 603},
	{smallest: 918, largest: 918, id: 1, address: 16, version: 177, versionSize: 6},
	{smallest: 256, largest: 800, id: 2, address: 16}, // other versions
	{smallest: 256, largest: 800, id: 2, address: 46},
	{smallest: 256, largest: 800, id: 1, address: 16},
	{smallest: 256, largest: 800, id: 1, address: 46},
}

const storageIDField = 16

// storageForm has the offsets of the fields in a record; 0 = the field is unknown.
type storageForm struct {
	smallest, largest    int // bounds for the size of a record
	id                   int // the address follows it
	address              int // size of the address
	version, versionSize int
	heartBeat            int
	port                 int
}

// ParseStorages parses the reply to CmdListStorages. The list is empty if the group has no
// storages.
func ParseStorages(body []byte) ([]StorageInfo, error) {
	if len(body) == 0 {
		return nil, nil
	}
	for _, form := range storageForms {
		if storages := parseRecords(body, form.smallest, form.largest, form.parse); storages != nil {
			return storages, nil
		}
	}
	return nil, fmt.Errorf("%w: %d bytes are no list of storages", ErrProtocol, len(body))
}

// parse parses one record. An address may be missing only in the forms with a port, those of the
// current version.
func (f storageForm) parse(record []byte) (StorageInfo, bool) {
	s := StorageInfo{Status: record[0]}
	id, ok := cutPadded(record[f.id : f.id+storageIDField])
	if !ok || id == "" || s.Status >= 100 {
		return s, false
	}
	if n, err := strconv.ParseUint(id, 10, 24); err == nil {
		s.ID = uint32(n)
	}
	text := cutNUL(record[f.id+storageIDField : f.id+storageIDField+f.address])
	if text != "" || f.port == 0 {
		addr, ok := parseAddr(text)
		if !ok {
			return s, false
		}
		s.Addr = addr
	}
	version := cutNUL(record[f.version:][:f.versionSize])
	if !strings.ContainsFunc(version, unprintable) {
		s.Version = version
	}
	if f.heartBeat > 0 {
		s.HeartBeat = int64(binary.BigEndian.Uint64(record[f.heartBeat:]))
	}
	if f.port == 0 {
		return s, true
	}
	port := binary.BigEndian.Uint64(record[f.port:])
	s.Port = int(port)
	return s, port < 1<<16
}

// parseRecords parses body as records of one size: the smallest size for which all records are
// valid. It returns nil if there is no such size.
func parseRecords[T any](body []byte, smallest, largest int, parse func(record []byte) (T, bool)) []T {
	for size := smallest; size <= min(largest, len(body)); size++ {
		var list []T
		valid := len(body)%size == 0
		for rest := body; valid && len(rest) > 0; rest = rest[size:] {
			var one T
			one, valid = parse(rest[:size])
			list = append(list, one)
		}
		if valid {
			return list
		}
	}
	return nil
}

// cutPadded returns the text before the padding; false if the padding has other bytes, or the text
// has control characters.
func cutPadded(b []byte) (string, bool) {
	text, padding, _ := bytes.Cut(b, []byte{0})
	return string(text), len(bytes.Trim(padding, "\x00")) == 0 && !bytes.ContainsFunc(text, unprintable)
}

// unprintable reports whether r is a blank or not a printable ASCII character.
func unprintable(r rune) bool { return r <= ' ' || r > '~' }
