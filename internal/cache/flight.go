package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/semaphore"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/checksum"
)

// role says where a flight gets its bytes from, and so who may read from it.
type role int

const (
	undecided role = iota
	giving         // from the source, or as the leader: other gateways may read what it gets
	following      // from another gateway; if others followed it in turn they could go in a circle
)

// flight fetches one segment for all requests of the process that want it. Its bytes can be read as they arrive. When it has put them
// into a tier it lets go of them, and its readers look there.
type flight struct {
	key    SegmentKey
	young  bool
	sealed bool            // no byte is given out before the CRC32 was compared: see Options.CheckFirst
	over   chan struct{}   // closed when the flight has ended, and made room for another one
	src    Source          // that it was begun with
	ctx    context.Context // of its waiting; ends with end, and with the Cache
	end    context.CancelCauseFunc

	mu      sync.Mutex // guards what follows; the bytes of chunks before visible do not change any more
	changed chan struct{}
	version Version
	known   bool  // version is
	told    bool  // by who gives the bytes; before that it is what the first reader believed
	length  int64 // of the segment, where the version is known
	chunks  [][]byte
	have    int64        // bytes received
	visible int64        // of these, what may be read: the last ones wait until all are checked
	sum     checksum.Sum // of the bytes received, in the variants that files of the group have
	left    bool         // the segment is in a tier
	tail    []byte       // then: its last chunk, which who has kept pace needs, and need not fetch again if it is evicted at once
	err     error        // why there will be no more
	readers int
	waiting int  // readers that have not left
	ended   bool // it is over, or about to be since nobody waits for it

	background bool   // it goes on although nobody waits
	orphanOf   string // the name of its source, if it is counted as one that does

	doomed bool // what it brings is not to be stored
	role   role
	from   From

	// Used by the flight's goroutine only:
	reserved   int64               // bytes of memory
	reservedOf *semaphore.Weighted // that they are counted in
	hearsay    bool                // the version is known from another gateway alone
	peer       string              // the other gateway that all bytes came from; empty = there is no such
}

func newFlight(ctx context.Context, key SegmentKey, src Source, young bool) *flight {
	key.File = canonical(key.File)
	f := &flight{key: key, src: src, young: young, changed: make(chan struct{}), over: make(chan struct{})}
	f.ctx, f.end = context.WithCancelCause(ctx)
	return f
}

// notify wakes those who wait for a change. It is called with mu held.
func (f *flight) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// await waits until the version is known.
func (f *flight) await(ctx context.Context) (Version, error) {
	for {
		f.mu.Lock()
		v, known, err, changed := f.version, f.known, f.err, f.changed
		f.mu.Unlock()
		switch {
		case known:
			return v, nil
		case err != nil:
			return Version{}, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Version{}, context.Cause(ctx)
		}
	}
}

// awaitTold waits until it is sure that the version is still that of the file. It is errAgain when the flight does not find that out.
func (f *flight) awaitTold(ctx context.Context) (Version, error) {
	for over := false; ; {
		f.mu.Lock()
		v, told, left, err, changed := f.version, f.told, f.left, f.err, f.changed
		f.mu.Unlock()
		switch {
		case errors.Is(err, ErrChanged): // also where it was told before
			return Version{}, errAgain
		case told:
			return v, nil
		case left:
			return Version{}, errAgain
		case err != nil:
			return Version{}, err
		case over:
			return Version{}, errAgain
		}
		select {
		case <-changed:
		case <-f.over: // perhaps it has found out since
			over = true
		case <-ctx.Done():
			return Version{}, context.Cause(ctx)
		}
	}
}

// awaitRole waits until it is decided where the bytes come from.
func (f *flight) awaitRole(ctx context.Context) (role, error) {
	for {
		f.mu.Lock()
		r, ended, changed := f.role, f.left || f.err != nil, f.changed
		f.mu.Unlock()
		if r != undecided || ended {
			return r, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return undecided, context.Cause(ctx)
		}
	}
}

// at gives bytes from an offset in the segment on. Where there are none yet, changed tells when to look again; left means that they
// are in a tier.
func (f *flight) at(offset, limit int64) (s Stretch, changed <-chan struct{}, left bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.left && f.tail != nil && offset >= f.length-int64(len(f.tail)):
		chunk := f.tail[offset-(f.length-int64(len(f.tail))):]
		n := min(limit, int64(len(chunk)))
		return Stretch{Bytes: chunk[:n:n], Length: n}, nil, false, nil
	case f.left:
		return s, nil, true, nil
	case offset < f.visible:
		chunk := f.chunks[offset/tier.ChunkSize][offset%tier.ChunkSize:]
		n := min(limit, f.visible-offset, int64(len(chunk)))
		return Stretch{Bytes: chunk[:n:n], Length: n}, nil, false, nil
	case f.err != nil:
		return s, nil, false, f.err
	}
	return s, f.changed, false, nil
}

// progress is how far it is.
func (f *flight) progress() (have, length int64, v Version, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.have, f.length, f.version, f.known
}

// learn notes the version; ErrChanged when it is another one than was known.
func (f *flight) learn(v Version) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known {
		if v != f.version {
			return fmt.Errorf("%w: %q", ErrChanged, f.key.File)
		}
		if !f.told {
			f.told = true
			f.notify()
		}
		return nil
	}
	f.version, f.known, f.told, f.length = v, true, true, v.SegmentLength(f.key.Index)
	f.notify()
	return nil
}

// isFor tells whether a flight is known to be for a version.
func (f *flight) isFor(v Version) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known && f.version == v
}

func (f *flight) setRole(r role) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.role = r
	f.notify()
}

func (f *flight) setFrom(from From) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from = from
}

func (f *flight) doom() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doomed = true
}

// fail ends the flight.
func (f *flight) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.notify()
}

// reveal lets the last bytes be read.
func (f *flight) reveal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.visible = f.have
	f.notify()
}

// leave lets go of the bytes, which are in a tier.
func (f *flight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release()
}

// release is leave with mu held.
func (f *flight) release() {
	if n := len(f.chunks); n > 0 && f.have == f.length {
		f.tail = f.chunks[n-1]
	}
	f.chunks, f.left = nil, true
	f.notify()
}

// room is where the next bytes go. The bytes behind visible are the flight's goroutine's own.
func (f *flight) room() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.have / tier.ChunkSize
	if i == int64(len(f.chunks)) {
		f.chunks = append(f.chunks, make([]byte, min(tier.ChunkSize, f.length-f.have)))
	}
	return f.chunks[i][f.have%tier.ChunkSize:]
}

// received takes n bytes that were written to room.
func (f *flight) received(p []byte) {
	sum := f.sum // only this goroutine changes it
	_, _ = sum.Write(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sum = sum
	f.have += int64(len(p))
	if f.have < f.length && !f.sealed {
		f.visible = f.have
		f.notify()
	}
}

// maxEmptyReads is how often a stream may give nothing and no error.
const maxEmptyReads = 100

// copyFrom receives bytes until the segment is complete.
func (f *flight) copyFrom(r io.Reader, count func(int)) error {
	empty := 0
	for {
		have, length, _, _ := f.progress()
		if have >= length {
			return nil
		}
		room := f.room()
		n, err := r.Read(room)
		if n > 0 {
			count(n)
			f.received(room[:n])
			empty = 0
			continue // an error that came with bytes comes again
		}
		switch empty++; {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("cannot fetch %q beyond byte %d of %d: %w", f.key.String(), have, length, io.ErrUnexpectedEOF)
		case err != nil:
			return fmt.Errorf("cannot fetch %q beyond byte %d of %d: %w", f.key.String(), have, length, err)
		case empty == maxEmptyReads:
			return fmt.Errorf("cannot fetch %q: %w", f.key.String(), io.ErrNoProgress)
		}
	}
}

// segment is what was fetched. It is called with mu held.
func (f *flight) segment() *tier.Segment {
	return &tier.Segment{Key: f.key, Version: f.version, Chunks: f.chunks, Sum: f.sum.Standard(), Hot: f.readers > 1}
}

// join makes the caller a reader of the flight for a segment, which it starts if there is none;
// quit ends that. v is the version that is wanted; nil when it is not known.
func (c *Cache) join(key SegmentKey, v *Version, src Source, young bool) *flight {
	return c.flightFor(key, v, src, young, 1)
}

// flightFor finds or starts a flight, which the caller waits for until it calls quit; readers is 0
// for one who may come to read it. One for another version goes on by itself for those who read
// from it.
func (c *Cache) flightFor(key SegmentKey, v *Version, src Source, young bool, readers int) *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.flights[key]; f != nil && c.enter(f, v, readers) {
		return f
	}
	f := newFlight(c.life, key, src, young)
	f.readers, f.waiting = readers, 1
	f.sealed, f.sum = c.o.CheckFirst(f.key.File), checksum.New(c.legacyGroups.Variants(groupOf(key.File)))
	if v != nil {
		f.version, f.known, f.length = *v, true, v.SegmentLength(key.Index)
	}
	if !c.start(&c.n.flights, func() { c.fill(f, src) }) {
		f.err = ErrClosed
		return f
	}
	c.flights[f.key] = f
	return f
}
