package fdfstest

import (
	"maps"
	"slices"
)

// logSize is the number of requests that a node keeps.
const logSize = 1024

// Request is a request as it was received.
type Request struct {
	Command byte
	Status  byte   // the flags of CmdFileInfo, else 0
	Body    []byte // without the header
}

// FileCount are the counts of the downloads of a file.
type FileCount struct {
	Downloads int   // replies of CmdDownload that were begun
	Bytes     int64 // of content that were sent
}

// Counts are the counts of a node since the start of the cluster or the last ResetCounts.
type Counts struct {
	Accepted int                  // connections
	Open     int                  // open connections, which ResetCounts does not change
	Requests map[byte]int         // by command, unknown ones as well
	Files    map[string]FileCount // by file id; storages only
}

// Total returns the number of requests of all commands.
func (c Counts) Total() int {
	total := 0
	for _, n := range c.Requests {
		total += n
	}
	return total
}

// tally has the counts and the log of a node. The node's mu guards it.
type tally struct {
	accepted int
	requests map[byte]int
	files    map[string]FileCount
	log      []Request // the newest last
}

func (t *tally) reset() {
	t.accepted, t.log = 0, nil
	t.requests, t.files = map[byte]int{}, map[string]FileCount{}
}

// Counts returns a copy of the node's counts.
func (n *Node) Counts() Counts {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Counts{
		Accepted: n.tally.accepted,
		Open:     len(n.conns),
		Requests: maps.Clone(n.tally.requests),
		Files:    maps.Clone(n.tally.files),
	}
}

// Requests returns the last 1024 requests at this node, the newest last.
func (n *Node) Requests() []Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.tally.log)
}

// ResetCounts sets the counts to zero and clears the log of requests.
func (n *Node) ResetCounts() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tally.reset()
}

func (n *Node) countRequest(r Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tally.requests[r.Command]++
	if len(n.tally.log) == logSize {
		n.tally.log = slices.Delete(n.tally.log, 0, 1)
	}
	n.tally.log = append(n.tally.log, r)
}

// addDownload adds to the counts of a file. An empty file means another kind of reply, which is not
// counted. A negative number of bytes corrects the count for bytes that were not sent.
func (n *Node) addDownload(file string, more FileCount) {
	if file == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	count := n.tally.files[file]
	count.Downloads += more.Downloads
	count.Bytes += more.Bytes
	n.tally.files[file] = count
}
