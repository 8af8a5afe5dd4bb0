package fdfs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
)

// The lists of a tracker are records of one size each, one after the other. The sizes grew with the versions of FastDFS, and
// nothing in an answer names the version. Those of the current one are read in full; for other sizes the fields at the
// beginning, which have kept their places, are looked for, and no port is known.

// GroupInfo is a group as a tracker lists it.
type GroupInfo struct {
	Name     string
	Storages int // how many storages it has; 0 where it is not known
	Port     int // of its storages; 0 where it is not known
}

// A record of the answer to CmdListGroups (6.13 and later, 113 bytes):
//
//	offset  length  field
//	0       17      name, NUL padded
//	17      8 each  total MB, free MB, reserved MB, free MB in trunk files
//	49      8       number of storages
//	57      8       port of the storages
//	65      8 each  readable and writable storages, current write server, store paths, sub directories, current trunk file
const (
	groupRecord    = 113
	groupNameField = 17
	groupCountAt   = 49
	groupPortAt    = 57
	smallestGroup  = 65  // other versions' are between these
	largestGroup   = 256 // and have numbers of 8 bytes behind the name as well
)

// ParseGroups reads the answer to CmdListGroups. An empty one is a tracker without groups.
func ParseGroups(body []byte) ([]GroupInfo, error) {
	valid := func(record []byte) bool {
		_, ok := parseGroup(record)
		return ok
	}
	size := groupRecord
	if !recordsFit(body, size, valid) {
		size = guessSize(body, smallestGroup, largestGroup, valid)
	}
	if size == 0 && len(body) > 0 {
		return nil, fmt.Errorf("%w: %d bytes are no list of groups", ErrProtocol, len(body))
	}
	groups := make([]GroupInfo, 0, len(body)/max(size, 1))
	for ; len(body) > 0; body = body[size:] {
		g, _ := parseGroup(body[:size])
		groups = append(groups, g)
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
	count := binary.BigEndian.Uint64(record[groupCountAt:])
	port := binary.BigEndian.Uint64(record[groupPortAt:])
	g.Storages, g.Port = int(count), int(port)
	return g, count < 1<<16 && port < 1<<16
}

// What StorageInfo.Status may be, among others.
const (
	StatusIPChanged = 3 // it has another address now
	StatusDeleted   = 4 // it was taken out of the group
	StatusActive    = 7 // it serves files
)

// StorageInfo is a storage as a tracker lists it.
type StorageInfo struct {
	Status byte       // StatusActive and others
	ID     uint32     // its storage id; 0 where the cluster has none
	Addr   netip.Addr // invalid where the tracker does not know it yet
	Port   int        // 0 where it is not known: then it is the group's
}

// A record of the answer to CmdListStorages (6.13 and later, 487 bytes, or 517 with long addresses):
//
//	offset  length    field
//	0       1         status
//	1       1         read and write mode; older trackers do not send it
//	2       16        storage id, or the address where there are none, NUL padded text
//	18      16 or 46  address, NUL padded text
//	+       16        id or address of the storage that this one was filled from
//	+       8         version
//	+       8 each    time of joining and of starting, total MB, free MB, reserved MB, upload priority, store paths,
//	                  sub directories, current write path
//	130     8         port (160 with long addresses)
//	+       ...       counters
var storageForms = []storageForm{
	{size: 487, id: 2, address: 16, port: 130},
	{size: 517, id: 2, address: 46, port: 160},
	{id: 2, address: 16}, {id: 2, address: 46},
	{id: 1, address: 16}, {id: 1, address: 46},
}

const (
	storageIDField  = 16
	smallestStorage = 256 // other versions' are between these
	largestStorage  = 800
)

// storageForm says where the fields of a record are.
type storageForm struct {
	size    int // of the record; 0 = any other
	id      int // offset of the id; the address stands behind it
	address int // size of the address
	port    int // offset of the port; 0 = it is not known
}

// ParseStorages reads the answer to CmdListStorages. An empty one is a group without storages.
func ParseStorages(body []byte) ([]StorageInfo, error) {
	if len(body) == 0 {
		return nil, nil
	}
	for _, form := range storageForms {
		valid := func(record []byte) bool {
			_, ok := form.parse(record)
			return ok
		}
		size := form.size
		if size == 0 {
			size = guessSize(body, smallestStorage, largestStorage, valid)
		} else if !recordsFit(body, size, valid) {
			size = 0
		}
		if size == 0 {
			continue
		}
		storages := make([]StorageInfo, 0, len(body)/size)
		for ; len(body) > 0; body = body[size:] {
			s, _ := form.parse(body[:size])
			storages = append(storages, s)
		}
		return storages, nil
	}
	return nil, fmt.Errorf("%w: %d bytes are no list of storages", ErrProtocol, len(body))
}

// parse reads one record. Where the form is a guess, an address must be there to confirm it.
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
	if text != "" || f.size == 0 {
		addr, ok := parseAddr(text)
		if !ok {
			return s, false
		}
		s.Addr = addr
	}
	if f.port == 0 {
		return s, true
	}
	port := binary.BigEndian.Uint64(record[f.port:])
	s.Port = int(port)
	return s, port < 1<<16
}

// recordsFit tells whether body is made of valid records of that size.
func recordsFit(body []byte, size int, valid func(record []byte) bool) bool {
	if len(body) == 0 || len(body)%size != 0 {
		return false
	}
	for ; len(body) > 0; body = body[size:] {
		if !valid(body[:size]) {
			return false
		}
	}
	return true
}

// guessSize is the smallest size from one to another that makes all records valid, 0 when there is none.
func guessSize(body []byte, smallest, largest int, valid func(record []byte) bool) int {
	for size := smallest; size <= min(largest, len(body)); size++ {
		if recordsFit(body, size, valid) {
			return size
		}
	}
	return 0
}

// cutPadded is the text before the padding; false when there is more than padding behind it, or a control character in it.
func cutPadded(b []byte) (string, bool) {
	text, padding, _ := bytes.Cut(b, []byte{0})
	for _, c := range padding {
		if c != 0 {
			return "", false
		}
	}
	for _, c := range text {
		if c <= ' ' || c >= 0x7f {
			return "", false
		}
	}
	return string(text), true
}
