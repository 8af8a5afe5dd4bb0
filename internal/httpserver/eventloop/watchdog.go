package eventloop

import (
	"sync/atomic"
	"time"
)

// stealAfter is the time after which a leader that does not return loses its loop. The loss may
// come after twice that time.
const stealAfter = 5 * time.Millisecond

// restAfter is the number of looks at idle loops after which the watchdog rests.
const restAfter = 100

// watchdog replaces leaders that do not return, for example because of a slow disk, and leaders
// that a panic has ended. It rests while all loops wait.
type watchdog struct {
	every   time.Duration // interval of the looks
	loops   []*loop
	seen    []uint64 // turns of each loop at the last look
	resting atomic.Bool
	wakeUp  chan struct{}
	end     chan struct{}
}

func (w *watchdog) init(loops []*loop) {
	w.loops, w.seen = loops, make([]uint64, len(loops))
	w.wakeUp, w.end = make(chan struct{}, 1), make(chan struct{})
}

func (w *watchdog) stop() { close(w.end) }

// wake ends a rest. Leaders call it for each batch of events.
func (w *watchdog) wake() {
	if w.resting.Load() && w.resting.CompareAndSwap(true, false) {
		w.wakeUp <- struct{}{}
	}
}

func (w *watchdog) run() {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for idle := 0; ; {
		select {
		case <-tick.C:
		case <-w.end:
			return
		}
		if idle++; w.look() {
			idle = 0
		}
		if idle < restAfter {
			continue
		}
		tick.Stop()
		w.resting.Store(true)
		// A leader that began to work before resting was set has not sent to wakeUp.
		if !w.look() || !w.resting.CompareAndSwap(true, false) {
			select {
			case <-w.wakeUp:
			case <-w.end:
				return
			}
		}
		idle = 0
		tick.Reset(w.every)
	}
}

// look replaces the leaders that still handle the event of the last look, and reports whether any
// leader handles an event.
func (w *watchdog) look() (active bool) {
	for i, l := range w.loops {
		l.mu.Lock()
		if !l.waiting {
			active = true
			if l.turns == w.seen[i] {
				l.replaceLeader()
			}
		}
		w.seen[i] = l.turns
		l.mu.Unlock()
	}
	return active
}
