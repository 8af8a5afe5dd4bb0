package fdfstest

import (
	"encoding/binary"
	"slices"
)

// minLogic is the shortest logic filename that a tracker takes: HH/LL/ and 27 characters.
const minLogic = 6 + 27

// trackerCommand handles a request at any of the trackers, which all know the same.
func (c *Cluster) trackerCommand(r Request) (reply, bool) {
	switch r.Command {
	case CmdFetchAll:
		return c.fetch(r), true
	case CmdParameters:
		return withoutBody(r, func() reply { return replyOf([]byte(c.parameters)) }), true
	case CmdStorageIDs:
		return c.storageIDs(r), true
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

// fetch returns which storages of the group are online.
//
//	offset  length  field of the request's body
//	     0      16  group, NUL padded
//	    16    rest  logic filename
//
//	offset  length  field of the reply's body, a = 15 or 45
//	     0      16  group, NUL padded
//	    16     a+8  address of the first storage, NUL padded text, and its port
//	  24+a   a+8 *  the others
func (c *Cluster) fetch(r Request) reply {
	if len(r.Body) < groupLen+minLogic || len(r.Body) > groupLen+maxLogic {
		return reject(StatusInvalid)
	}
	group := c.knownGroup(cutText(r.Body[:groupLen]))
	if group == nil || len(online(group.storages)) == 0 {
		return reject(StatusNotFound)
	}
	b := appendPadded(nil, group.name, groupLen)
	for _, s := range online(group.storages) {
		b = appendPadded(b, s.advertise.Addr().String(), c.addressSize)
		b = appendInt(b, int64(s.advertise.Port()))
	}
	return replyOf(b)
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
