package origin

import (
	"context"
	"io"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
)

// File is a file on other hosts during one request. The zero File is no file.
type File struct {
	a       *Resolver
	req     *Request
	local   error                   // the reason for which the file is not here
	entry   cache.Entry             // from the cache; its File is empty without the cache
	whole   client.Part             // of a server, without the cache
	fetcher *fetcher                // nil until it may be needed
	ctx     context.Context         // of the fetches for this request; Close ends it
	cancel  context.CancelCauseFunc // nil until something may be fetched
	waited  func()                  // ends the wait for a source; nil: none

	pinned cache.Pinned  // keeps the bytes of first in memory
	first  content.Chunk // chunk that Open has waited for; its Length is 0 after At has returned it
	stream stream        // nil: none is open
	next   int64         // offset of first, or otherwise of the next bytes of stream
	end    int64         // end of the range of stream
}

var _ content.File = (*File)(nil)

// stream is a range of a file: a *cache.Stream, or a *download or *slotStream, which serve only
// this request.
type stream interface {
	Next(limit int64) (content.Chunk, error)
	From() cache.From
	Close() error
}

// beginFetches prepares a file for fetches, until Close.
func (f *File) beginFetches(a *Resolver, r *Request, fetcher *fetcher) {
	f.Close()
	a.o.Running.Add(1)
	f.a, f.req, f.local, f.fetcher = a, r, fetcher.localErr, fetcher
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
}

// Close ends all fetches. It does nothing for a closed or zero File.
func (f *File) Close() {
	if f.a == nil {
		return
	}
	f.endWait()
	f.closeStream()
	f.pinned.Release()
	if f.cancel != nil {
		f.cancel(nil)
		f.a.o.Running.Add(-1)
	}
	*f = File{}
}

// isCached reports whether the file comes through the cache.
func (f *File) isCached() bool { return f.entry.File != "" }

// Version returns the version that the cache or a storage has reported.
func (f *File) Version() content.Version {
	if f.isCached() {
		return f.entry.Version
	}
	return f.whole.Version
}

// Stale reports whether the metadata of the file has expired.
func (f *File) Stale() bool { return f.isCached() && f.entry.State == cache.Stale }

// Revalidated reports whether another host was asked about the file for this request.
func (f *File) Revalidated() bool { return !f.isCached() || f.entry.State == cache.Revalidated }

// Attachment returns the value of the last Attach, or nil.
func (f *File) Attachment() any { return f.entry.Attachment() }

// Attach keeps a small value that does not change, until the metadata of the file is fetched again.
// Without a cache the value is not kept.
func (f *File) Attach(v any) { f.entry.Attach(v) }

// Open waits for the first bytes of a range (length more than 0), which the next At returns: until
// they have come, a failure can still become a status. Open returns the place that they come from.
// The errors are those of Find. Bytes that the cache has stored need no place among the requests
// that wait. If it has only the first ones and the source may be down, Open waits for the others
// too.
func (f *File) Open(offset, length int64) (cache.From, error) {
	defer f.endWait()
	if f.isCached() {
		if from, ok, err := f.openStored(offset, length); ok {
			return from, err
		}
	}
	f.beginFetch()
	err := f.wait()
	if err != nil {
		return cache.FromNowhere, err
	}
	if !f.isCached() {
		err = f.openRange(offset, length)
	}
	if err == nil {
		if f.first, err = f.stream.Next(length); err == nil {
			return f.stream.From(), nil
		}
		if !f.isCached() && f.ctx.Err() == nil {
			f.a.o.Counters.count(err)
		}
	}
	return cache.FromNowhere, f.a.responseErr(f.req.ID, err, f.req.Now)
}

// openStored is Open for first bytes that the cache has stored. If it returns false the stream of
// the range is open, and has fetched nothing.
func (f *File) openStored(offset, length int64) (from cache.From, ok bool, err error) {
	if held, ok := f.a.o.Cache.Pin(&f.entry, offset, length); ok {
		f.pinned, f.first, f.next = held, held.Chunk, offset
		return cache.FromMemory, true, nil
	}
	f.beginFetch()
	f.closeStream()
	stream := f.a.o.Cache.Open(f.ctx, f.entry, f.fetcher, offset, length)
	f.stream, f.next, f.end = stream, offset, offset+length
	if f.first, err = stream.NextStored(length); err != nil {
		return cache.FromNowhere, false, nil
	}
	return stream.From(), true, f.confirm(stream)
}

// Confirm is a part of Open, for a range that is opened later.
func (f *File) Confirm(offset, length int64) error {
	if !f.isCached() {
		return nil
	}
	f.beginFetch()
	stream := f.a.o.Cache.Open(f.ctx, f.entry, f.fetcher, offset, length)
	defer func() { _ = stream.Close() }() // nothing was read
	defer f.endWait()
	return f.confirm(stream)
}

// confirm makes sure that the rest of a stream can be fetched, if the cache does not have it and
// the source may be down: its last request has failed, or the metadata has expired. Otherwise the
// failure would cut a response that has begun.
func (f *File) confirm(rest *cache.Stream) error {
	if rest.HasRest() || !f.Stale() && !f.a.o.Protocol.AreDown(f.fetcher.decided().servers) {
		return nil
	}
	err := f.wait()
	if err == nil {
		err = rest.AwaitRest()
	}
	if err != nil {
		err = f.a.responseErr(f.req.ID, err, f.req.Now)
	}
	return err
}

// At implements content.File.
func (f *File) At(offset, limit int64) (c content.Chunk, err error) {
	if f.first.Length > 0 && offset == f.next {
		c, f.first = f.first, content.Chunk{}
	} else {
		if f.stream == nil || offset != f.next || f.next == f.end {
			f.beginFetch()
			if err := f.openRange(offset, limit); err != nil {
				return c, err
			}
		}
		if c, err = f.stream.Next(limit); err != nil {
			return c, err
		}
	}
	f.next = offset + c.Length
	if f.next == f.end && c.Bytes != nil && !f.isSlotInMemory() {
		f.closeStream() // for a slow client only these bytes are kept
	}
	return c, nil
}

// isSlotInMemory reports whether the stream returns parts of a whole slot in memory, which counts
// in slots.room until the stream is closed.
func (f *File) isSlotInMemory() bool {
	slot, ok := f.stream.(*slotStream)
	return ok && slot.held != nil
}

// beginFetch makes the fetcher of a file that was found in the cache.
func (f *File) beginFetch() {
	if f.fetcher != nil {
		return
	}
	r, a, local, entry := f.req, f.a, f.local, f.entry
	fetcher := a.newFetcher(r, local, true)
	fetcher.request.BySource = fdfs.NamesSource(entry.File)
	f.beginFetches(a, r, fetcher)
	f.entry = entry
}

// openRange opens a stream of a range, in place of another one.
func (f *File) openRange(offset, length int64) error {
	f.closeStream()
	part := f.whole.At(offset, length)
	switch {
	case f.isCached():
		f.stream = f.a.o.Cache.Open(f.ctx, f.entry, f.fetcher, offset, length)
	case needsSums(f.fetcher.request.ID, part.Version):
		slot, err := f.fetcher.openSlot(f.ctx, part)
		if err != nil {
			return err
		}
		f.stream = slot
	default:
		body, err := f.fetcher.fetchOnce(f.ctx, part)
		if err != nil {
			return err
		}
		f.stream = &download{ReadCloser: body}
	}
	f.next, f.end = offset, offset+length
	return nil
}

// closeStream closes the stream, if one is open.
func (f *File) closeStream() {
	if f.stream != nil {
		_ = f.stream.Close() // an error does not matter: the needed bytes were read
		f.stream = nil
	}
}

// firstRead bounds the bytes of a download that Open waits for: small files arrive as a whole, and
// verified.
const firstRead = 32 << 10

// download is a range of a file that a server sends for this request only.
type download struct {
	io.ReadCloser
	begun bool
}

// From implements stream.
func (d *download) From() cache.From { return cache.FromOrigin }

// Next implements stream. It waits for the first bytes. All further bytes are read where they are
// copied, so that a slow client needs no buffer.
func (d *download) Next(limit int64) (content.Chunk, error) {
	all := content.Chunk{Stream: d, Length: limit}
	if d.begun {
		return all, nil
	}
	d.begun = true
	first := make([]byte, min(limit, firstRead))
	n, err := all.Load(first)
	return content.InMemory(first[:n]), err
}
