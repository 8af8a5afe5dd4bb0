package fdfstest

import (
	"slices"
	"time"
)

// Faults says what goes wrong with the replies of a tracker or storage. The zero value is no fault.
type Faults struct {
	Commands []byte // which commands are struck; none named: all
	Times    int    // how many requests are struck, then the rule is spent; 0: all

	Delay time.Duration // passes before the first byte of the reply
	Hang  bool          // no reply until the faults are set anew, which then decide
	Rate  int           // bytes a second, header included; 0: as fast as it goes

	// BreakAt closes the connection when so many bytes of the body were sent, though the header
	// promised all. A negative number stops inside the header: -10 is before its first byte. Bodies
	// that are not longer go out whole. ResetAt does the same by a reset (RST).
	BreakAt, ResetAt *int
	// FreezeAt stops sending when so many bytes of the body were sent, counted like BreakAt, and
	// keeps the connection open until the faults are set anew; then the rest goes out.
	FreezeAt *int

	WrongLength int64 // is added to the length in the header; the bytes of the body stay what they are
	Garbage     bool  // bytes without sense in place of header and body
	Status      byte  // this errno in place of the reply
}

// strikes reports whether the rule is about command.
func (f *Faults) strikes(command byte) bool {
	return len(f.Commands) == 0 || slices.Contains(f.Commands, command)
}

// stop is how many bytes of header and body go out, and whether the connection is reset
// behind them; total when nothing cuts the reply.
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

// rule is a Faults that is in force.
type rule struct {
	Faults
	left int // requests still to be struck where Times is not 0
}

// rules are all that were set by one SetFaults. The pointer tells a later set from this one.
type rules struct{ list []rule }

var noFaults Faults

// SetFaults puts rules in force in place of those before it: for each request the first that names
// its command and is not spent counts. Without any, all is well again. Replies under way follow the
// new Rate at once; everything else counts from the next request on.
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

// takeFault is the rule for one request, which spends it, and the set it belongs to.
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

// rate is the rate for a reply that was begun under set with rate old.
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
