package cachelock_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// tenure is one acquisition from its request to its end, as the process that requested it has
// observed it. Times count from the start of the history.
type tenure struct {
	id        int // 1, 2, ...
	process   int
	fence     int64
	call, ret time.Duration // of the acquisition
	until     time.Duration // last result of Lock.Until
	endCall   time.Duration // call of the release; forever = none
	endRet    time.Duration // return of a successful release; forever = none
	end       string        // result of the release
}

const forever = time.Duration(math.MaxInt64 / 2)

// claimed returns the time until which the process may rely on the lock.
func (h *tenure) claimed() time.Duration { return min(h.until, h.endCall) }

func (h *tenure) String() string {
	return fmt.Sprintf("process %2d tenure %3d fence %d: asked %s, got %s, valid until %s, released %s to %s: %s",
		h.process, h.id, h.fence, ms(h.call), ms(h.ret), ms(h.until), ms(h.endCall), ms(h.endRet), h.end)
}

func ms(d time.Duration) string {
	if d == forever {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(d)/1e6)
}

// deed is an extension or a commit of a process.
type deed struct {
	process   int
	what      kind
	tenure    int
	fence     int64
	call, ret time.Duration
	rejected  bool // a commit after that of a later holder
	repeated  bool // the Redis client may have sent it more than once
}

func (d *deed) String() string {
	outcome := "yes"
	switch {
	case d.rejected:
		outcome = "rejected"
	case d.ret == forever:
		outcome = "no reply"
	}
	return fmt.Sprintf("process %2d tenure %3d fence %d: %s asked %s, replied %s: %s",
		d.process, d.tenure, d.fence, d.what, ms(d.call), ms(d.ret), outcome)
}

// history has the operations of all processes of a run.
type history struct {
	start time.Time

	mu      sync.Mutex // guards the fields below
	tenures []*tenure
	deeds   []*deed
	wrongs  []string // violations that a process itself has detected
}

func (h *history) now() time.Duration { return time.Since(h.start) }

func (h *history) at(t time.Time) time.Duration { return t.Sub(h.start) }

func (h *history) addTenure(t *tenure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tenures = append(h.tenures, t)
	t.id = len(h.tenures)
}

func (h *history) addDeed(d *deed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deeds = append(h.deeds, d)
}

func (h *history) wrong(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrongs = append(h.wrongs, fmt.Sprintf(format, args...))
}

// String lists the tenures and deeds in the order of their start.
func (h *history) String() string {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	for _, t := range h.tenures {
		lines = append(lines, line{t.call, t.String()})
	}
	for _, d := range h.deeds {
		lines = append(lines, line{d.call, d.String()})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&b, l.text)
	}
	return b.String()
}

// check returns the violations in a complete history.
func (h *history) check() []string {
	wrongs := slices.Clone(h.wrongs)
	switch porcupine.CheckOperationsTimeout(lockModel, h.operations(), time.Minute) {
	case porcupine.Illegal:
		wrongs = append(wrongs, "there is no order of the operations in which a lock could have replied like this")
	case porcupine.Unknown:
		wrongs = append(wrongs, "the checker has not come to an end")
	}
	return wrongs
}

// kind is the kind of an operation on the lock, or on the register that the lock protects.
type kind string

const (
	acquire kind = "acquire"
	end     kind = "end" // by a release or by expiry
	extend  kind = "extend"
	commit  kind = "commit"
)

// request is the input of an operation for porcupine.
type request struct {
	what     kind
	tenure   int
	fence    int64
	rejected bool
	noReply  bool
}

// state is the state of an ideal lock and its register.
type state struct {
	holder int   // the tenure; 0 = free
	fence  int64 // of the last acquisition
	seen   int64 // the highest fence of a commit
}

// lockModel is the model of an ideal lock. The lock is acquired only while it is free, with a
// higher fence than ever before. It ends once, for its holder, and only its holder extends it. The
// register accepts a commit unless it has accepted one with a higher fence.
var lockModel = porcupine.Model{
	Partition: partition,
	Init:      func() any { return state{} },
	Step: func(before, asked, _ any) (bool, any) {
		s, r := before.(state), asked.(request)
		switch r.what {
		case acquire:
			return s.holder == 0 && r.fence > s.fence, state{holder: r.tenure, fence: r.fence, seen: s.seen}
		case end:
			return s.holder == r.tenure, state{fence: s.fence, seen: s.seen}
		case extend:
			return s.holder == r.tenure, s
		default:
			if r.rejected {
				return s.seen > r.fence, s
			}
			return r.noReply || s.seen <= r.fence,
				state{holder: s.holder, fence: s.fence, seen: max(s.seen, r.fence)}
		}
	},
}

// partition separates the operations on the lock from those on the register: only the fences
// connect them.
func partition(all []porcupine.Operation) [][]porcupine.Operation {
	var lock, register []porcupine.Operation
	for _, op := range all {
		if op.Input.(request).what == commit {
			register = append(register, op)
		} else {
			lock = append(lock, op)
		}
	}
	return [][]porcupine.Operation{lock, register}
}

// operations returns the history as operations for porcupine. A tenure ends during its release if
// the release succeeded, else at any time after its claim. A commit without a reply may be executed
// at any time after its call: a commit that is never executed equals one at the very end.
func (h *history) operations() (all []porcupine.Operation) {
	add := func(process int, r request, call, ret time.Duration) {
		all = append(all, porcupine.Operation{ClientId: process, Input: r, Call: int64(call), Return: int64(ret)})
	}
	for _, t := range h.tenures {
		add(t.process, request{what: acquire, tenure: t.id, fence: t.fence}, t.call, t.ret)
		from := t.claimed()
		if t.endRet != forever {
			from = t.endCall
		}
		add(t.process, request{what: end, tenure: t.id}, from, t.endRet)
	}
	for _, d := range h.deeds {
		r := request{what: d.what, tenure: d.tenure, fence: d.fence, rejected: d.rejected, noReply: d.ret == forever}
		add(d.process, r, d.call, d.ret)
		if d.rejected && d.repeated { // the first request may have been accepted
			r.rejected, r.noReply = false, true
			add(d.process, r, d.call, forever)
		}
	}
	return all
}
