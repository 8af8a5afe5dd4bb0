package fdfstest

import (
	"slices"
	"time"
)

// Faults are faults of the replies of a tracker or storage. The zero value is no fault.
type Faults struct {
	Commands []byte // commands that are affected; empty: all
	Times    int    // number of requests that are affected; 0: all

	Delay time.Duration // passes before the first byte of the reply
	Hang  bool          // no reply until the next SetFaults, whose faults then apply
	Rate  int           // bytes a second, header included; 0: no limit

	// BreakAt closes the connection after so many bytes of the body, though the header has the
	// whole length. A negative number ends the reply inside the header: -10 is before its first
	// byte. A body that is not longer is sent completely. ResetAt does the same by a reset (RST).
	BreakAt, ResetAt *int
	// FreezeAt stops sending after so many bytes of the body, counted like BreakAt. The connection
	// stays open; the next SetFaults continues the reply.
	FreezeAt *int

	WrongLength int64 // is added to the length in the header; the body does not change
	Garbage     bool  // random bytes in place of header and body
	Status      byte  // errno that replaces the reply
}

// strikes reports whether the faults affect a command.
func (f *Faults) strikes(command byte) bool {
	return len(f.Commands) == 0 || slices.Contains(f.Commands, command)
}

// stop returns the number of bytes of header and body that are sent, and whether a reset follows
// them; total if the faults do not cut the reply.
func (f *Faults) stop(total int64) (n int64, reset bool) {
	n = total
	if f.BreakAt != nil {
		n = min(n, max(0, headerLen+int64(*f.BreakAt)))
	}
	if f.ResetAt != nil {
		if at := max(0, headerLen+int64(*f.ResetAt)); at < n {
			return at, true
		}
	}
	return n, false
}

// rule is one of the Faults that are in force.
type rule struct {
	Faults
	left int // requests that are still affected, unless Times is 0
}

// rules are the rules of one call of SetFaults. The pointer identifies the call.
type rules struct{ list []rule }

var noFaults Faults

// SetFaults replaces the faults of the node. To each request applies the first one that affects its
// command and has requests left. SetFaults without arguments ends all faults. Replies in progress
// follow the new Rate at once; all other faults apply from the next request on.
func (n *Node) SetFaults(faults ...Faults) {
	set := &rules{}
	for _, f := range faults {
		f.Commands = slices.Clone(f.Commands)
		set.list = append(set.list, rule{Faults: f, left: f.Times})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = set
}

// takeFault returns the faults of one request, and the rules in force. It counts the request in its
// rule.
func (n *Node) takeFault(command byte) (Faults, *rules) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.rules.list {
		r := &n.rules.list[i]
		if !r.strikes(command) || r.Times > 0 && r.left == 0 {
			continue
		}
		if r.Times > 0 {
			r.left--
		}
		return r.Faults, n.rules
	}
	return noFaults, n.rules
}

// rate returns the current rate of a reply that began under set with rate old.
func (n *Node) rate(command byte, set *rules, old int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rules == set {
		return old
	}
	for i := range n.rules.list {
		if n.rules.list[i].strikes(command) {
			return n.rules.list[i].Rate
		}
	}
	return 0
}

func (n *Node) inForce(set *rules) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rules == set
}
