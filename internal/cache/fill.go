package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs/checksum"
)

// role says where a fill gets its bytes from, and so whether other gateways may read from it.
type role int

const (
	undecided role = iota
	leader         // from the source, or as the holder of the lease: other gateways may read
	waiter         // from another gateway: if others followed it in turn, they could go in a circle
)

// fill fetches one segment of a file, all of them (Whole), or its metadata alone, for all
// requests of the process that want it. Its bytes can be read while they arrive. When they are in a
// tier the fill lets go of them, and its readers look there.
type fill struct {
	key         SegmentKey
	src         Source
	maxAge      time.Duration   // as in GetOptions
	forPeer     bool            // another gateway has asked for it: no owner is asked
	fetchesMeta bool            // it was started to find out the metadata
	verifyFirst bool            // no byte is given out before the CRC32 was compared: Options.VerifyFirst
	ctx         context.Context // of its waiting; ends with end, and with the Cache
	end         context.CancelCauseFunc

	mu         sync.Mutex // guards what follows; the bytes of chunks before published do not change
	changed    chan struct{}
	version    Version
	hasVersion bool // version is: confirmed by meta, or what the first reader expects
	meta       Meta // from the source or a peer
	hasMeta    bool // meta is
	length     int64
	chunks     [][]byte
	have       int64        // bytes received
	published  int64        // of these, what may be read: the last ones wait until all are checked
	sum        checksum.Sum // of the bytes received, in the variants that files of the group have
	inTier     bool         // the segment is in a tier
	tail       []byte       // then: its last chunk, for readers that keep pace, should it be evicted at once
	err        error        // why there will be no more bytes

	readers       int         // streams
	waiting       int         // streams and requests that have not left
	ended         bool        // it is over, or was ended since nothing waits for it
	background    bool        // it goes on although nothing waits
	detached      bool        // it is counted as one that does
	detachedTimer *time.Timer // ends it when nothing has waited for detachedTime; nil = something waits
	invalidated   bool        // what it brings is not to be kept
	role          role
	from          From
	fromPeer      bool     // all bytes came from one other gateway
	senders       []string // servers that sent bytes; "" is one that another gateway has asked

	// Used by the fill's goroutine only:
	reserved reservation // in the room of what is being fetched
	memory   int64       // bytes of the memory of the tier, for chunks
}

// fillOptions say more about a fill that is started.
type fillOptions struct {
	want        *Version // nil: not known
	maxAge      time.Duration
	forPeer     bool
	fetchesMeta bool
}

func (c *Cache) newFill(key SegmentKey, src Source, o fillOptions) *fill {
	key.File = strings.Clone(key.File)
	_, verifyFirst := c.o.VerifyFirst(key.File)
	f := &fill{
		key: key, src: src, maxAge: o.maxAge, forPeer: o.forPeer, fetchesMeta: o.fetchesMeta,
		verifyFirst: verifyFirst, sum: checksum.New(c.legacyGroups.Variants(groupOf(key.File))),
		changed: make(chan struct{}),
	}
	if o.want != nil {
		f.version, f.hasVersion, f.length = *o.want, true, o.want.SegmentLength(key.Index)
	}
	f.ctx, f.end = context.WithCancelCause(c.life)
	return f
}

// leaseKey is the key of the lease for a segment, or for the metadata of the file.
func (f *fill) leaseKey() string {
	if f.key.Index == MetaOnly {
		return f.key.File
	}
	return f.key.String()
}

// metaKey is the key of the metadata of the file.
func (f *fill) metaKey() SegmentKey { return SegmentKey{File: f.key.File, Index: MetaOnly} }

// covers tells whether the fill brings a segment of its file.
func (f *fill) covers(index int64) bool { return f.key.Index == index || f.key.Index == Whole }

// RankKey is the key that gateways are ranked for, given the key of an entry.
func RankKey(key SegmentKey) string {
	key.Index = max(0, key.Index)
	return key.String()
}

// notifyLocked wakes those that wait for a change. mu is held.
func (f *fill) notifyLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// update changes the state under mu and tells those that wait.
func (f *fill) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.notifyLocked()
}

// await waits until ready, which is called with mu held, says so, and gives its error; or until ctx
// ends.
func (f *fill) await(ctx context.Context, ready func() (bool, error)) error {
	for {
		f.mu.Lock()
		ok, err := ready()
		changed := f.changed
		f.mu.Unlock()
		if ok {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitMeta waits for the metadata, from the source or a peer. It is errAgain if it has changed.
func (f *fill) awaitMeta(ctx context.Context) (m Meta, err error) {
	err = f.await(ctx, func() (bool, error) {
		m = f.meta
		switch {
		case errors.Is(f.err, ErrChanged):
			return true, errAgain
		case f.hasMeta:
			return true, nil
		}
		return f.err != nil, f.err
	})
	return m, err
}

// awaitLeader waits until this gateway fetches the entry itself, of a version unless want is nil.
// It is ErrNotHere when another one does.
func (f *fill) awaitLeader(ctx context.Context, want *Version) error {
	return f.await(ctx, func() (bool, error) {
		switch {
		case f.role == waiter:
			return true, ErrNotHere
		case want != nil && f.hasVersion && f.version != *want:
			return true, ErrChanged
		case want != nil && !f.hasVersion && f.err != nil:
			return true, f.err
		}
		return f.inTier || f.err != nil || f.role == leader && (want == nil || f.hasVersion), nil
	})
}

// at gives bytes of a version from an offset in the segment on. Where there are none yet, changed
// tells when to look again; left means that they are in a tier.
func (f *fill) at(v Version, offset, limit int64) (s content.Chunk, changed <-chan struct{}, left bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.hasVersion && f.version != v:
		return s, nil, false, fmt.Errorf("%w: %q", ErrChanged, f.key.File)
	case f.inTier && f.tail != nil && offset >= f.length-int64(len(f.tail)):
		chunk := f.tail[offset-(f.length-int64(len(f.tail))):]
		n := min(limit, int64(len(chunk)))
		return content.InMemory(chunk[:n:n]), nil, false, nil
	case f.inTier:
		return s, nil, true, nil
	case offset < f.published:
		chunk := f.chunks[offset/tier.ChunkSize][offset%tier.ChunkSize:]
		n := min(limit, f.published-offset, int64(len(chunk)))
		return content.InMemory(chunk[:n:n]), nil, false, nil
	case f.err != nil:
		return s, nil, false, f.err
	}
	return s, f.changed, false, nil
}

func (f *fill) received() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.have
}

func (f *fill) expectedVersion() (v Version, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version, f.hasVersion
}

// origin tells where the bytes come from.
func (f *fill) origin() From {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.from
}

// setMeta takes the metadata; ErrChanged when the version is not the known one.
func (f *fill) setMeta(m Meta) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hasVersion && m.Version != f.version {
		return fmt.Errorf("%w: %q", ErrChanged, f.key.File)
	}
	f.version, f.hasVersion, f.length = m.Version, true, m.Version.SegmentLength(f.key.Index)
	f.meta, f.hasMeta = m, true
	f.notifyLocked()
	return nil
}

func (f *fill) setRole(r role) { f.update(func() { f.role = r }) }
func (f *fill) fail(err error) { f.update(func() { f.err = err }) }
func (f *fill) publish()       { f.update(func() { f.published = f.have }) }

// cameFrom notes where the next bytes come from.
func (f *fill) cameFrom(from From) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from, f.fromPeer = from, from == FromPeer && f.have == 0
}

// sentBy adds the servers that sent the bytes of a body to the senders, if there were any.
func (f *fill) sentBy(body any, before int64) {
	senders := []string{""}
	if b, ok := body.(Senders); ok {
		senders = b.Senders()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.have > before {
		f.senders = addNew(f.senders, senders)
	}
}

// addNew appends the strings that are not in the list yet.
func addNew(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// moveToTier lets go of the bytes, which are in a tier.
func (f *fill) moveToTier() {
	f.update(func() {
		if n := len(f.chunks); n > 0 && f.have == f.length {
			f.tail = f.chunks[n-1]
		}
		f.chunks, f.inTier = nil, true
	})
}

// space is where the next bytes go; grow is told of a new chunk. The bytes behind published are the
// goroutine's own.
func (f *fill) space(grow func(bytes int64)) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.have >= f.length {
		return nil
	}
	i := f.have / tier.ChunkSize
	if i == int64(len(f.chunks)) {
		chunk := make([]byte, min(tier.ChunkSize, f.length-f.have))
		f.chunks = append(f.chunks, chunk)
		f.memory += int64(len(chunk))
		grow(int64(len(chunk)))
	}
	return f.chunks[i][f.have%tier.ChunkSize:]
}

// take takes bytes that were written to space.
func (f *fill) take(p []byte) {
	sum := f.sum // only this goroutine changes it
	_, _ = sum.Write(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sum = sum
	f.have += int64(len(p))
	if f.have < f.length && !f.verifyFirst {
		f.published = f.have
		f.notifyLocked()
	}
}

// maxEmptyReads is how often a body may give nothing and no error.
const maxEmptyReads = 100

// copyFrom receives bytes until the segment is complete. grow is told of the memory that is needed,
// chunk by chunk: a slow source evicts nothing for bytes that have not come.
func (f *fill) copyFrom(r io.Reader, grow func(bytes int64)) error {
	for empty := 0; ; {
		space := f.space(grow)
		if len(space) == 0 {
			return nil
		}
		n, err := r.Read(space)
		if n > 0 {
			f.take(space[:n])
			empty = 0
			continue // an error that came with bytes comes again
		}
		if empty++; err == nil && empty == maxEmptyReads {
			err = io.ErrNoProgress
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("cannot fetch %q beyond byte %d: %w", f.key.String(), f.received(), err)
		}
	}
}
