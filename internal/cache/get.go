package cache

import (
	"context"
	"errors"
	"time"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/content"
)

// NoHint is the Hint of a request that needs no bytes, or selects them by the size of the file.
const NoHint = -1

// GetOptions are the optional properties of a request.
type GetOptions struct {
	// Hint is the offset of the first byte that will be read. For an unknown file the segment of
	// this byte is fetched at once, without a prior request for size and time.
	Hint int64
	// MaxAge is the maximum age of the metadata. Older metadata is confirmed before it is used,
	// unless that fails. 0: as old as Options allow.
	MaxAge time.Duration
	// NoWait: metadata that may be served while the source fails is returned at once, and the
	// source is asked in the background. Without such metadata the error is ErrMiss.
	NoWait bool

	forPeer bool // the request is one of another gateway: no owner is asked
}

// State is the freshness of an Entry.
type State int

// The states.
const (
	Fresh       State = iota // not expired
	Stale                    // expired: it is being revalidated in the background, or that has failed
	Revalidated              // fetched by this request, or by a fill that it has waited for
)

// Entry is the metadata of a file that exists, for one request: with its freshness.
type Entry struct {
	File string
	Meta
	State State

	by  *fill       // the fill that Get has waited for; nil = none
	rec *metaRecord // keeps the attachment; nil = an attachment is not kept
}

// Get returns the metadata of a file. Fresh metadata is returned at once, without an allocation.
// Stale metadata is returned at once while one request of the fleet revalidates it. Otherwise Get
// waits for the fill that fetches the metadata, until ctx ends.
//
// file is the canonical name. Fills keep src and file after the request has ended, so their memory
// must not be reused. With a nil src the cache keeps no file and asks no source: the error is
// ErrMiss where a source would be asked, and the Entry has a File if the cache has metadata
// nevertheless. Other errors are ErrNotFound, those of src, and the cause of ctx.
func (c *Cache) Get(ctx context.Context, file string, src Source, o GetOptions) (Entry, error) {
	now := time.Now()
	rec, m, freshness := c.metas.look(file, now, o.MaxAge)
	known := Entry{}
	if rec != nil {
		known = Entry{File: rec.file, Meta: m, rec: rec}
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
	case freshness == staleFailing, freshness == stale && !o.forPeer, // a peer gets fresh metadata
		freshness == staleIfError && o.NoWait:
		c.refresh(file, src, o, freshness)
		return c.stale(known), nil
	case o.NoWait:
		return Entry{}, ErrMiss
	}
	m, f, err := c.fetchMeta(ctx, file, src, o, freshness)
	switch {
	case err == nil:
		return Entry{File: f.key.File, Meta: m, State: Revalidated, by: f}, nil
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrNotHere), errors.Is(ctx.Err(), context.Canceled):
		return Entry{}, err
	case known.File != "":
		return c.stale(known), nil
	}
	return Entry{}, err
}

// stale counts an expired entry that is served.
func (c *Cache) stale(e Entry) Entry {
	c.n.stale.Add(1)
	e.State, e.rec = Stale, nil
	return e
}

// refresh fetches the metadata in the background.
func (c *Cache) refresh(file string, src Source, o GetOptions, freshness freshness) {
	f := c.joinMeta(file, src, o, freshness)
	c.removeOwner(f, false, true)
}

// fetchMeta waits for the fill that fetches the metadata.
func (c *Cache) fetchMeta(ctx context.Context, file string, src Source, o GetOptions, freshness freshness) (
	m Meta, f *fill, err error,
) {
	for range maxChanges {
		f = c.joinMeta(file, src, o, freshness)
		if err = nil; o.forPeer {
			err = f.awaitLeader(ctx, nil) // the peer must request an entry from the gateway that fetches it
		}
		if err == nil {
			m, err = f.awaitMeta(ctx)
		}
		c.removeOwner(f, false, isOverdue(ctx))
		if !errors.Is(err, ErrChanged) {
			break
		}
		freshness = unknown
	}
	return m, f, err
}

// maxChanges bounds the fetches of the metadata of a file that changes during a fetch. Two storages
// with different versions have the same effect, as long as one of them lags behind.
const maxChanges = 3

// Attachment returns the value of the last Attach, or nil. The value is lost when the metadata is
// fetched again.
func (e *Entry) Attachment() any {
	if e.rec == nil {
		return nil
	}
	if v := e.rec.attachment.Load(); v != nil {
		return *v
	}
	return nil
}

// Attach stores a value beside the metadata, for the next Get that finds it fresh. The value must
// be small and not change any more.
func (e *Entry) Attach(v any) {
	if e.rec != nil {
		e.rec.attachment.Store(&v)
	}
}

// Meta returns the metadata of a file in this process, and its expiry. Unlike Get it has no effect
// on the metadata, and fetches nothing.
func (c *Cache) Meta(file string) (m Meta, expires time.Time, ok bool) { return c.metas.peek(file) }

// Pinned is a chunk of a file in memory, which stays there until Release. Bytes stay valid while
// they are referred to.
type Pinned struct {
	content.Chunk
	view tier.View
}

// Release ends the use of the chunk. Further calls do nothing.
func (p *Pinned) Release() {
	p.view.Release()
	*p = Pinned{}
}

// Pin returns length bytes (more than 0) of a file from offset on if they are in memory in one
// piece, as the bytes of one segment usually are. Otherwise it returns false, and the caller opens
// a Stream.
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
	if chunk.Bytes != nil { // the view would keep the whole segment in memory after its eviction
		view = tier.View{}
	}
	return Pinned{chunk, view}, true
}
