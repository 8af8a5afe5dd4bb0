package fdfstest

import "time"

// Constants in the lists of groups and storages, in place of values that the cluster does not have.
const (
	statusOnline = 7 // FastDFS calls it active
	statusGone   = 5 // offline
	readWrite    = 6
	version      = "6.16.1" // of storages by default
	versionLen   = 8
	// In records of 5.x:
	domainLen     = 128
	oldVersionLen = 6

	totalMB    = 1 << 20
	freeMB     = 1 << 19
	reservedMB = 1024
	priority   = 10
	subDirs    = 4
	connsAlloc = 64
	zeroStats  = 38 // counters of operations and bytes, 8 bytes each
)

func (c *Cluster) listGroups() reply {
	var b []byte
	for _, g := range c.groups {
		if len(g.known()) > 0 {
			b = appendGroup(b, g)
		}
	}
	return replyOf(b)
}

// appendGroup adds the record of a group.
//
//	offset  length  field
//	     0      17  name, NUL padded
//	    17       8  space, MB
//	    25       8  free space, MB
//	    33       8  reserved space, MB
//	    41       8  free space in trunk files, MB
//	    49       8  number of storages
//	    57       8  port of the storages
//	    65       8  number of storages that can be read
//	    73       8  number of storages that can be written
//	    81       8  which storage is written now
//	    89       8  store paths of a storage
//	    97       8  sub directories a level
//	   105       8  number of the trunk file that is written now, or -1
func appendGroup(b []byte, g *group) []byte {
	active := int64(len(online(g.storages)))
	b = appendPadded(b, g.name, groupLen+1)
	for _, v := range []int64{
		totalMB, freeMB, reservedMB, 0,
		int64(len(g.known())), int64(g.storages[0].advertise.Port()),
		active, active, 0, int64(g.storePaths), subDirs, -1,
	} {
		b = appendInt(b, v)
	}
	return b
}

// listServers returns the records of the storages of a group, or of the storage whose id follows
// the group in the request.
func (c *Cluster) listServers(r Request) reply {
	if len(r.Body) < groupLen || len(r.Body) > groupLen+idLen {
		return reject(StatusInvalid)
	}
	g := c.knownGroup(cutText(r.Body[:groupLen]))
	if g == nil {
		return reject(StatusNotFound)
	}
	wanted, found := cutText(r.Body[groupLen:]), false
	var b []byte
	for _, s := range g.known() {
		if wanted == "" || wanted == s.ID() {
			b, found = c.appendStorage(b, s), true
		}
	}
	if !found {
		return reject(StatusNotFound)
	}
	return replyOf(b)
}

// appendStorage adds the record of a storage: 487 bytes with a = 16, the size of an address with
// one NUL.
//
//	offset  length  field
//	     0       1  status: 7 active, 5 offline
//	     1       1  6: may be read and written
//	     2      16  id, NUL padded; the address when there are no storage ids
//	    18       a  address, NUL padded
//	  18+a      16  id of the storage it got its files from, empty for the first
//	  34+a       8  version, NUL padded
//	  42+a      16  when it joined, when it was started; unix seconds
//	  58+a      24  space, free space, reserved space; MB
//	  82+a      40  upload priority, store paths, sub directories, store path written now, port
//	 122+a      12  connections: allocated, open, most; 4 bytes each
//	 134+a     304  counters of operations and bytes
//	 438+a      32  last change as source, last change by others, how far others are in sync, last heart
//	                beat; unix seconds
//	 470+a       1  1: gives out the space in trunk files
//
// Trackers of 5.x have no byte 1, a domain name of 128 bytes behind the address, and 6 bytes of
// version: 612 bytes.
func (c *Cluster) appendStorage(b []byte, s *Storage) []byte {
	status := byte(statusOnline)
	if s.offline.Load() {
		status = statusGone
	}
	version, size := *s.version.Load(), versionLen
	b = append(b, status)
	if !c.oldLists {
		b = append(b, readWrite)
	}
	b = appendPadded(b, s.ID(), idLen)
	b = appendPadded(b, s.advertise.Addr().String(), c.addressSize+1)
	if c.oldLists {
		b, size = appendPadded(b, "", domainLen), oldVersionLen
	}
	b = appendPadded(b, "", idLen)
	b = appendPadded(b, version, size)
	for _, v := range []int64{
		c.started.Unix(), c.started.Unix(), totalMB, freeMB, reservedMB,
		priority, int64(s.group.storePaths), subDirs, 0, int64(s.advertise.Port()),
	} {
		b = appendInt(b, v)
	}
	open := byte(min(s.Counts().Open, 255))
	b = append(b, 0, 0, 0, connsAlloc, 0, 0, 0, open, 0, 0, 0, open)
	b = append(b, make([]byte, 8*zeroStats)...)
	now := time.Now().Unix()
	for _, v := range []int64{c.started.Unix(), c.started.Unix(), c.started.Unix(), now} {
		b = appendInt(b, v)
	}
	return append(b, 0)
}
