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

// The locks of this package, in the order in which they are taken; none of them is held during a
// wait for another host, for the disk, or for a reader:
//
//	Cache.mu      the fills of all entries, and their numbers
//	hedge.mu      the requests of one fill to other gateways; never together with Cache.mu
//	fill.mu       bytes, metadata and owners of one fill
//	metaCache.mu  the metadata of all files
//	tier          the locks of Memory and Disk, see package tier
//
// transition needs Cache.mu and fill.mu. A fill is stored with fill.mu held, so that no purge comes
// in between: a purge calls fill.invalidate with fill.mu held, and purges metadata and tiers later.

// fillState is the life of a fill. Only Cache.transition changes it:
//
//	wanted       it fetches, for its owners: the requests and streams that wait for it
//	inBackground it fetches to its end, also without owners
//	lingering    it fetches without owners, for lingerTime: the next request may need it
//	abandoned    it had no owners, and its fetch is being ended
//	failed       the fetch has failed: no more bytes will come
//	kept         all bytes are in the fill, and its readers may have them: no tier has stored them
//	done         it has ended; its buffers are free, and readers look in the tiers
type fillState int

const (
	wanted fillState = iota
	inBackground
	lingering
	abandoned
	failed
	kept
	done
)

// isFetching reports whether requests may wait for the result of the fetch.
func (s fillState) isFetching() bool { return s <= lingering }

// hasEnded reports whether the state is the outcome of a fetch.
func (s fillState) hasEnded() bool { return s >= failed }

// role is the kind of source of a fill. It decides whether other gateways may read the bytes of the
// fill.
type role int

const (
	undecided role = iota
	leader         // reads from the source, or has the lease: other gateways may read from this one
	waiter         // reads from another gateway: others may not, or gateways could wait in a circle
)

// fill is one running fetch of an entry: of a segment, of all segments (Whole), or of the metadata
// alone (MetaOnly). All requests of the process share it and read its bytes while they arrive.
// After a tier has stored the segment, the fill frees its buffers, and readers look in the tier.
type fill struct {
	key         SegmentKey
	src         Source
	maxAge      time.Duration   // as in GetOptions
	forPeer     bool            // started by a request of another gateway: no owner is asked
	fetchesMeta bool            // requests for the metadata wait for it
	verifyFirst bool            // no byte is published before the CRC32 was compared, see Options.VerifyFirst
	ctx         context.Context // ends with endFetch, and with the Cache
	endFetch    context.CancelCauseFunc
	valid       context.Context    // ends with invalidate
	invalidate  context.CancelFunc // the result is not stored; called with mu held

	mu         sync.Mutex    // guards the fields below; bytes before published never change
	changed    chan struct{} // closed at the next change; nil while nothing waits for it
	version    Version
	hasVersion bool // version is set: by meta, or by the first reader
	meta       Meta // from the source or a peer
	hasMeta    bool // meta is set
	length     int64
	chunks     [][]byte
	have       int64        // bytes received
	published  int64        // bytes that readers may have: the last ones wait for verify
	sum        checksum.Sum // of the received bytes, in the variants of the group
	sums       []uint32     // standard sum of the bytes up to the end of each chunk
	tail       []byte       // last chunk of a stored segment: for readers that keep pace, if the tier evicts it at once
	err        error        // of failed

	state       fillState   // changed by Cache.transition
	owners      int         // streams and requests that wait
	streams     int         // that have read from the fill
	linger      *time.Timer // of lingering and kept
	role        role
	roleAwaited bool // awaitLeader waits for a change of role
	from        From
	fromPeer    bool     // all bytes came from one other gateway
	senders     []string // servers that sent bytes; "" is an unknown one, which another gateway asked

	// Only the goroutine of the fill uses the fields below.
	reserved reservation // of the room for fetches
	peers    *hedge      // requests to other gateways; nil = none was sent
	lost     int         // number of leases that were given up, see awaitHolder
	memory   int64       // bytes reserved in the memory tier for chunks
}

// fillOptions are the optional properties of a new fill.
type fillOptions struct {
	want        *Version // nil: unknown
	maxAge      time.Duration
	forPeer     bool
	fetchesMeta bool
	awaited     [2]*fill // fills that the caller has waited for, which it may read if they are for the same entry
}

func (c *Cache) newFill(key SegmentKey, src Source, o fillOptions) *fill {
	_, verifyFirst := c.o.VerifyFirst(key.File)
	f := &fill{
		key: key, src: src, maxAge: o.maxAge, forPeer: o.forPeer, fetchesMeta: o.fetchesMeta,
		verifyFirst: verifyFirst, sum: checksum.New(c.legacyGroups.Variants(groupOf(key.File))),
	}
	if o.want != nil {
		f.version, f.hasVersion, f.length = *o.want, true, o.want.SegmentLength(key.Index)
	}
	f.ctx, f.endFetch = context.WithCancelCause(c.life)
	f.valid, f.invalidate = context.WithCancel(context.Background())
	return f
}

// leaseKey returns the key of the lease of the entry.
func (f *fill) leaseKey() string {
	key := f.key.File
	if f.key.Index != MetaOnly {
		key = f.key.String()
	}
	return key + strings.Repeat("+", f.lost)
}

// metaKey returns the key of the metadata of the file.
func (f *fill) metaKey() SegmentKey { return SegmentKey{File: f.key.File, Index: MetaOnly} }

// covers reports whether the fill fetches a segment.
func (f *fill) covers(index int64) bool { return f.key.Index == index || f.key.Index == Whole }

// RankKey returns the key by which gateways are ranked for an entry.
func RankKey(key SegmentKey) string {
	key.Index = max(0, key.Index)
	return key.String()
}

// notifyLocked wakes the goroutines that wait for a change. mu is held.
func (f *fill) notifyLocked() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// changedLocked returns a channel that is closed at the next change. mu is held.
func (f *fill) changedLocked() <-chan struct{} {
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// await calls ready, with mu held, at first and after each change, until ready reports true. It
// returns the error of ready then, or the cause of ctx if that ends before.
func (f *fill) await(ctx context.Context, ready func() (bool, error)) error {
	for {
		f.mu.Lock()
		ok, err := ready()
		if ok {
			f.mu.Unlock()
			return err
		}
		changed := f.changedLocked()
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitMeta waits for the metadata, from the source or a peer. The error is ErrChanged if the file
// has changed since.
func (f *fill) awaitMeta(ctx context.Context) (m Meta, err error) {
	err = f.await(ctx, func() (bool, error) {
		m = f.meta
		switch {
		case errors.Is(f.err, ErrChanged):
			return true, f.err
		case f.hasMeta:
			return true, nil
		}
		return f.err != nil, f.err
	})
	return m, err
}

// awaitLeader waits until this gateway fetches the entry, in version want if that is not nil, or
// the fill has ended. The error is ErrNotHere if another gateway fetches the entry, and ErrChanged
// if the fill has another version.
func (f *fill) awaitLeader(ctx context.Context, want *Version) error {
	return f.await(ctx, func() (bool, error) {
		f.roleAwaited = true
		switch {
		case f.role == waiter:
			return true, ErrNotHere
		case want != nil && f.hasVersion && f.version != *want:
			return true, ErrChanged
		case want != nil && !f.hasVersion && f.err != nil:
			return true, f.err
		}
		return f.state == done || f.err != nil || f.role == leader && (want == nil || f.hasVersion), nil
	})
}

// at returns bytes of a version from an offset in the segment on. If none have come yet, changed is
// closed at the next change. If the fill is done, the caller looks in the tiers.
func (f *fill) at(v Version, offset, limit int64) (s content.Chunk, changed <-chan struct{}, isDone bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.hasVersion && f.version != v:
		return s, nil, false, fmt.Errorf("%w: %q", ErrChanged, f.key.File)
	case f.tail != nil && offset >= f.length-int64(len(f.tail)):
		chunk := f.tail[offset-(f.length-int64(len(f.tail))):]
		n := min(limit, int64(len(chunk)))
		return content.InMemory(chunk[:n:n]), nil, false, nil
	case f.state == done:
		return s, nil, true, nil
	case offset < f.published:
		chunk := f.chunks[offset/tier.ChunkSize][offset%tier.ChunkSize:]
		n := min(limit, f.published-offset, int64(len(chunk)))
		return content.InMemory(chunk[:n:n]), nil, false, nil
	case f.err != nil:
		return s, nil, false, f.err
	}
	return s, f.changedLocked(), false, nil
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

// origin returns the place that the bytes come from.
func (f *fill) origin() From {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.from
}

// setMeta sets the metadata. The error is ErrChanged if the version is not the expected one.
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

// setRole sets the role. Usually it wakes no goroutine, since only awaitLeader waits for a role.
func (f *fill) setRole(r role) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.role = r; f.roleAwaited {
		f.notifyLocked()
	}
}

// publish publishes the last bytes, which are verified.
func (f *fill) publish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.published = f.have
	f.notifyLocked()
}

// cameFrom records the place that the next bytes come from.
func (f *fill) cameFrom(from From) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from, f.fromPeer = from, from == FromPeer && f.have == 0
}

// isReadable reports whether a reader can get the bytes of version v from the fill; nil is any
// version.
func (f *fill) isReadable(v *Version) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isReadableLocked(v)
}

func (f *fill) isReadableLocked(v *Version) bool {
	return (f.state.isFetching() || f.state == kept) && (v == nil || !f.hasVersion || f.version == *v)
}

// sentBy adds the servers that sent a body to the senders, unless the body had no bytes. before is
// the number of bytes that were received before it.
func (f *fill) sentBy(body any, before int64) {
	var senders []string
	if b, ok := body.(Senders); ok {
		senders = b.Senders()
	} else {
		senders = []string{""}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.have == before:
	case f.senders == nil:
		f.senders = senders
	default:
		f.senders = addNew(f.senders, senders)
	}
}

// addNew appends the strings that the list does not contain.
func addNew(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// freeBuffersLocked frees the buffers of the fill. After a tier has stored the segment the last
// chunk stays. mu is held.
func (f *fill) freeBuffersLocked(isStored bool) {
	f.tail = nil
	if n := len(f.chunks); isStored && n > 0 && f.have == f.length {
		f.tail = f.chunks[n-1]
	}
	f.chunks = nil
}

// space returns the buffer for the next bytes, and calls grow with the length of a new chunk. No
// reader uses the bytes after published.
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

// addBytes counts bytes that were written to space, and publishes them. The last bytes of the
// entry, and all bytes with verifyFirst, are published after verify.
func (f *fill) addBytes(p []byte) {
	sum := f.sum // only this goroutine changes it
	_, _ = sum.Write(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sum = sum
	f.have += int64(len(p))
	if f.have%tier.ChunkSize == 0 || f.have == f.length {
		f.sums = append(f.sums, sum.Standard())
	}
	if f.have < f.length && !f.verifyFirst {
		f.published = f.have
		f.notifyLocked()
	}
}

// maxEmptyReads bounds the successive reads of a body that return neither bytes nor an error.
const maxEmptyReads = 100

// copyFrom receives bytes until the segment is complete. It calls grow chunk by chunk: a slow
// source does not evict segments for bytes that have not come yet.
func (f *fill) copyFrom(r io.Reader, grow func(bytes int64)) error {
	for empty := 0; ; {
		space := f.space(grow)
		if len(space) == 0 {
			return nil
		}
		n, err := r.Read(space)
		if n > 0 {
			f.addBytes(space[:n])
			empty = 0
			continue // the next read repeats an error that came with bytes
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
