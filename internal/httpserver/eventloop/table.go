package eventloop

import "golang.org/x/sys/unix"

// table finds the connection or listener of an event. The kernel may report an event of a socket
// that was closed meanwhile, so the data of an event are the index and the generation of an entry.
type table struct {
	entries []entry
	free    []uint32
}

// entry is a connection, a listener, or free.
type entry struct {
	conn       *Conn
	listener   *Listener
	generation uint32
}

// addEntry adds an entry, and returns the data of its events.
func (t *table) addEntry(e entry) (index, generation uint32) {
	if n := len(t.free); n > 0 {
		index = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		index = uint32(len(t.entries))
		t.entries = append(t.entries, entry{})
	}
	e.generation = t.entries[index].generation
	t.entries[index] = e
	return index, e.generation
}

// remove frees an entry.
func (t *table) remove(index uint32) {
	t.entries[index] = entry{generation: t.entries[index].generation + 1}
	t.free = append(t.free, index)
}

// get returns the entry of an event; an empty one if it was removed.
func (t *table) get(e *unix.EpollEvent) (to entry) {
	if index := uint32(e.Fd); index < uint32(len(t.entries)) && t.entries[index].generation == uint32(e.Pad) {
		return t.entries[index]
	}
	return entry{}
}

// event returns an event with the data of an entry.
func event(events, index, generation uint32) *unix.EpollEvent {
	return &unix.EpollEvent{Events: events, Fd: int32(index), Pad: int32(generation)}
}
