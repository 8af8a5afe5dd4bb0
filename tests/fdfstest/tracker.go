package fdfstest

import (
	"encoding/binary"
	"slices"
	"strings"
)

// minLogic is the shortest logic filename that a tracker takes: HH/LL/ and 27 characters.
const minLogic = 6 + 27

// trackerCommand handles a request at any of the trackers, which all know the same.
func (c *Cluster) trackerCommand(r Request) (reply, bool) {
	switch r.Command {
	case CmdFetchOne, CmdUpdate, CmdFetchAll:
		return c.fetch(r), true
	case CmdStore:
		return c.store(r), true
	case CmdParameters:
		return withoutBody(r, func() reply { return replyOf([]byte(c.parameters)) }), true
	case CmdStorageIDs:
		return c.storageIDs(r), true
	case CmdStorageID:
		return c.storageID(r), true
	case CmdListGroup:
		return c.listGroup(r), true
	case CmdListGroups:
		return withoutBody(r, c.listGroups), true
	case CmdListServers:
		return c.listServers(r), true
	case CmdActive:
		return withoutBody(r, func() reply { return reply{} }), true
	}
	return reply{}, false
}

// withoutBody rejects requests that have a body and should not.
func withoutBody(r Request, do func() reply) reply {
	if len(r.Body) != 0 {
		return reject(StatusInvalid)
	}
	return do()
}

// fetch returns which storages have a file.
//
//	offset  length  field of the request's body
//	     0      16  group, NUL padded
//	    16    rest  logic filename
//
//	offset  length  field of the reply's body, a = 15 or 45
//	     0      16  group, NUL padded
//	    16       a  address of the first storage, NUL padded text
//	  16+a       8  its port
//	  24+a   a+8 *  the others, 105 only; without their ports from old trackers
func (c *Cluster) fetch(r Request) reply {
	if len(r.Body) < groupLen+minLogic || len(r.Body) > groupLen+maxLogic {
		return reject(StatusInvalid)
	}
	group := c.knownGroup(cutText(r.Body[:groupLen]))
	if group == nil {
		return reject(StatusNotFound)
	}
	listed := online(c.listed(group, string(r.Body[groupLen:]), r.Command))
	if len(listed) == 0 {
		if listed = online(group.storages); len(listed) == 0 {
			return reject(StatusNotFound)
		}
		listed = listed[:1] // as real ones do: better one that may have the file than none
	}
	if r.Command == CmdFetchOne {
		turn := int(c.turn.Add(1)-1) % len(listed)
		listed = listed[turn : turn+1]
	}
	b := c.appendServer(appendPadded(nil, group.name, groupLen), listed[0], true)
	for _, s := range listed[1:] {
		b = c.appendServer(b, s, !c.onePort)
	}
	return replyOf(b)
}

func (c *Cluster) appendServer(b []byte, s *Storage, port bool) []byte {
	b = appendPadded(b, s.advertise.Addr().String(), c.addressSize)
	if port {
		b = appendInt(b, int64(s.advertise.Port()))
	}
	return b
}

// knownGroup is a group that the trackers know.
func (c *Cluster) knownGroup(name string) *group {
	if g := c.group(name); g != nil && len(g.known()) > 0 {
		return g
	}
	return nil
}

// known are the storages that the trackers know.
func (g *group) known() []*Storage {
	return slices.DeleteFunc(slices.Clone(g.storages), func(s *Storage) bool { return s.unlisted.Load() })
}

// online are those of storages that the trackers believe to be there.
func online(storages []*Storage) []*Storage {
	var list []*Storage
	for _, s := range storages {
		if s.isOnline() && !s.unlisted.Load() {
			list = append(list, s)
		}
	}
	return list
}

// listed are the storages that should have a file. Of a file that was never put the trackers know
// as much as real ones do: its name.
func (c *Cluster) listed(g *group, logic string, command byte) []*Storage {
	name, ok := decodeName(logic)
	source := g.storages[0]
	for _, s := range g.storages {
		if ok && s.source == name.source {
			source = s
		}
	}
	if f := c.file(g.name + "/" + logic); f != nil && command != CmdUpdate {
		return f.listed
	}
	if command == CmdUpdate || !ok || name.changeable {
		return []*Storage{source}
	}
	return g.storages
}

// store returns where to put a new file: any storage, and the first store path.
func (c *Cluster) store(r Request) reply {
	storages := online(c.storages)
	switch {
	case len(r.Body) != 0:
		return reject(StatusInvalid)
	case len(storages) == 0:
		return reject(StatusNotFound)
	}
	s := storages[int(c.turn.Add(1)-1)%len(storages)]
	b := c.appendServer(appendPadded(nil, s.group.name, groupLen), s, true)
	return replyOf(append(b, 0))
}

// storageIDs returns lines of storage_ids.conf.
//
//	offset  length  field of the request's body
//	     0       4  number of the first line, from 0
//	     4       1  1: return no lines, rather than an error, when there are no storage ids
//
//	offset  length  field of the reply's body
//	     0       4  number of all lines
//	     4       4  number of lines in this reply
//	     8    rest  the lines, each ended by a line feed
func (c *Cluster) storageIDs(r Request) reply {
	if len(r.Body) != 5 {
		return reject(StatusInvalid)
	}
	if !c.useIDs {
		if r.Body[4] == 0 {
			return reject(StatusUnsupported)
		}
		return replyOf(make([]byte, 8))
	}
	first, total := uint64(binary.BigEndian.Uint32(r.Body)), len(c.idLines)
	if first >= uint64(total) {
		return reject(StatusInvalid)
	}
	lines := c.idLines[first:]
	if c.idsPerReply > 0 && len(lines) > c.idsPerReply {
		lines = lines[:c.idsPerReply]
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(total))
	b = binary.BigEndian.AppendUint32(b, uint32(len(lines)))
	for _, line := range lines {
		b = append(append(b, line...), '\n')
	}
	return replyOf(b)
}

// storageID returns the id of the storage at an address: group, then host:port as text.
func (c *Cluster) storageID(r Request) reply {
	if len(r.Body) <= groupLen {
		return reject(StatusInvalid)
	}
	addr := strings.TrimRight(string(r.Body[groupLen:]), "\x00")
	for _, s := range c.storages {
		if s.group.name == cutText(r.Body[:groupLen]) &&
			(s.advertise.String() == addr || s.advertise.Addr().String() == addr) {
			return replyOf([]byte(s.ID()))
		}
	}
	return reject(StatusNotFound)
}
