package fdfstest

import (
	"encoding/binary"
	"slices"
)

// trackerCommand handles a request at any of the trackers, which all have the same state.
func (c *Cluster) trackerCommand(r Request) (reply, bool) {
	switch r.Command {
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

// withoutBody calls do for a request without a body, and rejects others.
func withoutBody(r Request, do func() reply) reply {
	if len(r.Body) != 0 {
		return reject(StatusInvalid)
	}
	return do()
}

// knownGroup returns a group that the trackers know, or nil.
func (c *Cluster) knownGroup(name string) *group {
	if g := c.group(name); g != nil && len(g.known()) > 0 {
		return g
	}
	return nil
}

// known returns the storages that the trackers know.
func (g *group) known() []*Storage {
	return slices.DeleteFunc(slices.Clone(g.storages), func(s *Storage) bool { return s.unlisted.Load() })
}

// online returns the storages that the trackers list as online.
func online(storages []*Storage) []*Storage {
	var list []*Storage
	for _, s := range storages {
		if !s.offline.Load() && !s.unlisted.Load() {
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
