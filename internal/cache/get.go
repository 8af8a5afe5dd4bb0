package cache

import (
	"context"
	"errors"
	"time"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/content"
)

// NoHint is the Hint of a request that cannot tell which bytes it needs before it knows the size,
// or needs none.
const NoHint = -1

// GetOptions say more about a request.
type GetOptions struct {
	// Hint is the offset of the first byte that will be read. When nothing is known about the file
	// its segment is fetched at once, without asking for size and time first.
	Hint int64
	// MaxAge is how old the metadata may be. Older metadata is confirmed before it is used, unless
	// that fails. 0: as old as Options allow.
	MaxAge time.Duration

	forPeer bool // another gateway asks: no owner is asked
}

// State tells how up to date an Entry is.
type State int

// The states.
const (
	Fresh       State = iota // known, and not expired
	Stale                    // known and expired: another request asks again, or has failed to
	Revalidated              // learned by this request, or by one that it waited for
)

// Entry is what is known of a file that is there.
type Entry struct {
	File    string
	Version Version
	State   State

	meta Meta
	by   *fill       // that is bringing content, for a request that has waited for it; nil = none
	rec  *metaRecord // where an attachment is kept; nil = nowhere
}

// Get returns the metadata of a file. Fresh metadata is returned at once, without an allocation.
// Stale metadata is returned at once while one request of all gateways asks again. Else the caller
// waits for that request, until ctx ends.
//
// file is the canonical name; it is not kept. Fills go on with src when the request has ended, so
// src must not belong to that request alone. With a nil src nothing is asked for: the error is
// ErrMiss where that is necessary, and the Entry has a File when something is known all the same.
// Other errors are ErrNotFound, those of src, and the cause of ctx.
func (c *Cache) Get(ctx context.Context, file string, src Source, o GetOptions) (Entry, error) {
	now := time.Now()
	rec, m, freshness := c.metas.look(file, now, o.MaxAge, src != nil)
	known := Entry{}
	if rec != nil {
		known = Entry{File: rec.file, Version: m.Version, meta: m, rec: rec}
	}
	switch {
	case freshness == fresh:
		return known, nil
	case freshness == gone:
		return Entry{}, ErrNotFound
	case freshness == staleHoldoff:
		return c.stale(known), nil
	case src == nil:
		return known, ErrMiss
	case freshness == early:
		c.refresh(file, src, o, freshness)
		return known, nil
	case freshness == staleFailing, freshness == stale && !o.forPeer: // a peer asks to be up to date
		c.refresh(file, src, o, freshness)
		return c.stale(known), nil
	}
	m, f, err := c.fetchMeta(ctx, file, src, o, freshness)
	switch {
	case err == nil:
		return Entry{File: f.key.File, Version: m.Version, State: Revalidated, meta: m, by: f}, nil
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrNotHere), errors.Is(ctx.Err(), context.Canceled):
		return Entry{}, err
	case known.File != "":
		return c.stale(known), nil
	}
	return Entry{}, err
}

// stale counts an entry that is served although it has expired.
func (c *Cache) stale(e Entry) Entry {
	c.n.stale.Add(1)
	e.State, e.rec = Stale, nil
	return e
}

// refresh asks for the metadata in the background.
func (c *Cache) refresh(file string, src Source, o GetOptions, freshness freshness) {
	f := c.joinMeta(file, src, o, freshness)
	f.update(func() { f.background = true })
	c.removeReader(context.Background(), f, false)
}

// fetchMeta waits for the fill that finds the metadata out.
func (c *Cache) fetchMeta(ctx context.Context, file string, src Source, o GetOptions, freshness freshness) (
	m Meta, f *fill, err error,
) {
	for err = errAgain; errors.Is(err, errAgain); {
		f = c.joinMeta(file, src, o, freshness)
		if err = nil; o.forPeer {
			err = f.awaitLeader(ctx, nil) // what another gateway fetches that one gives
		}
		if err == nil {
			m, err = f.awaitMeta(ctx)
		}
		c.removeReader(ctx, f, false)
	}
	return m, f, err
}

// Attachment is the value of the last Attach, or nil. It is gone when the file is asked about
// again.
func (e *Entry) Attachment() any {
	if e.rec == nil {
		return nil
	}
	if v := e.rec.attachment.Load(); v != nil {
		return *v
	}
	return nil
}

// Attach keeps something of the user's beside the metadata, for the next Get that finds it fresh:
// it must not change any more. It is counted with the bookkeeping, so it is to be small.
func (e *Entry) Attach(v any) {
	if e.rec != nil {
		e.rec.attachment.Store(&v)
	}
}

// Meta tells what is known about a file here, and when that expires. Unlike Get it changes
// nothing, and asks nothing.
func (c *Cache) Meta(file string) (m Meta, expires time.Time, ok bool) { return c.metas.peek(file) }

// Pinned is a chunk of a file that was in memory when it was asked for, and stays so until
// Release. Bytes of it stay good for as long as they are referred to.
type Pinned struct {
	content.Chunk
	view tier.View
}

// Release ends the use of the chunk. Further calls do nothing.
func (p *Pinned) Release() {
	p.view.Release()
	*p = Pinned{}
}

// Pin gives length bytes (more than 0) of a file from offset on where they are in memory in one
// piece, as those of one segment usually are. Otherwise it is false, and a Stream brings them.
func (c *Cache) Pin(e *Entry, offset, length int64) (Pinned, bool) {
	in := offset % SegmentSize
	if e.by != nil || offset < 0 || length <= 0 || length > SegmentSize-in || offset > e.Version.Size-length {
		return Pinned{}, false
	}
	view, ok := c.memory.Get(tier.KeyAt(e.File, offset), e.Version, true)
	if !ok {
		return Pinned{}, false
	}
	chunk, err := view.At(in, length)
	if err != nil || chunk.Length < length {
		view.Release()
		return Pinned{}, false
	}
	c.n.memoryHits.Add(1)
	return Pinned{chunk, view}, true
}
