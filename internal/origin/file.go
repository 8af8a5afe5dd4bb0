package origin

import (
	"context"
	"io"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
)

// File is a file on other hosts during one request. The zero File is none.
type File struct {
	a       *Resolver
	req     *Request
	local   error                   // why the file is not here
	entry   cache.Entry             // of the cache; its File is empty without the cache
	info    client.Info             // without the cache: by a server
	fetcher *fetcher                // nil until it may be needed
	ctx     context.Context         // of the fetches of this one request; ended by Close
	cancel  context.CancelCauseFunc // nil until something may be fetched
	waited  func()                  // ends the wait for a source; nil: there is none

	pinned cache.Pinned  // holds first
	first  content.Chunk // that Open has waited for; without a length once it is given
	stream stream        // nil: none is open
	next   int64         // offset of first, or else of what stream gives next
	end    int64         // of stream
}

var _ content.File = (*File)(nil)

// stream is a range of a file as it comes: a *cache.Stream, or a *download or *slotStream of this
// request alone.
type stream interface {
	Next(limit int64) (content.Chunk, error)
	From() cache.From
	Close() error
}

// begin begins with a file that may be fetched.
func (f *File) begin(a *Resolver, r *Request, fetcher *fetcher) {
	f.Close()
	a.o.Running.Add(1)
	f.a, f.req, f.local, f.fetcher = a, r, fetcher.localErr, fetcher
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
}

// Close ends all fetches. Closing twice, or closing no File, does nothing.
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

// Version returns the version by the storage or the cache.
func (f *File) Version() content.Version {
	if f.isCached() {
		return f.entry.Version
	}
	return f.info.Version
}

// Stale reports whether the metadata of the file has expired.
func (f *File) Stale() bool { return f.isCached() && f.entry.State == cache.Stale }

// Revalidated reports whether another host was asked about the file for this request.
func (f *File) Revalidated() bool { return !f.isCached() || f.entry.State == cache.Revalidated }

// Attachment returns the value of the last Attach, or nil.
func (f *File) Attachment() any { return f.entry.Attachment() }

// Attach keeps something small that does not change, until the file is asked about again. Without
// a cache it is not kept.
func (f *File) Attach(v any) { f.entry.Attach(v) }

// Open waits for the first bytes of a range (length more than 0), which At gives then: until these
// are here, a failure can be told by a status. It returns where they come from. The errors are
// those of Find. Bytes that the cache has stored need no place among the requests that wait.
func (f *File) Open(offset, length int64) (cache.From, error) {
	defer f.endWait()
	if f.isCached() {
		if from, ok := f.openStored(offset, length); ok {
			return from, nil
		}
	}
	f.beginFetch()
	err := f.wait()
	if err != nil {
		return cache.FromNowhere, err
	}
	if !f.isCached() {
		err = f.open(offset, length)
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

// openStored is Open for bytes that the cache has stored. Otherwise the stream of the range is
// open, and has fetched nothing.
func (f *File) openStored(offset, length int64) (from cache.From, ok bool) {
	if held, ok := f.a.o.Cache.Pin(&f.entry, offset, length); ok {
		f.pinned, f.first, f.next = held, held.Chunk, offset
		return cache.FromMemory, true
	}
	f.beginFetch()
	f.closeStream()
	stream := f.a.o.Cache.Open(f.ctx, f.entry, f.fetcher, offset, length)
	f.stream, f.next, f.end = stream, offset, offset+length
	first, err := stream.NextStored(length)
	f.first = first
	return stream.From(), err == nil
}

// At implements content.File.
func (f *File) At(offset, limit int64) (c content.Chunk, err error) {
	if f.first.Length > 0 && offset == f.next {
		c, f.first = f.first, content.Chunk{}
	} else {
		if f.stream == nil || offset != f.next || f.next == f.end {
			f.beginFetch()
			if err := f.open(offset, limit); err != nil {
				return c, err
			}
		}
		if c, err = f.stream.Next(limit); err != nil {
			return c, err
		}
	}
	f.next = offset + c.Length
	if f.next == f.end && c.Bytes != nil && !f.isSlotInMemory() {
		f.closeStream() // a slow client holds nothing but these bytes
	}
	return c, nil
}

// isSlotInMemory reports whether the stream gives chunks of a whole slot, whose memory is counted
// until the stream is closed.
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
	f.begin(a, r, fetcher)
	f.entry = entry
}

// open opens a stream of a range, in place of another one.
func (f *File) open(offset, length int64) error {
	f.closeStream()
	switch {
	case f.isCached():
		f.stream = f.a.o.Cache.Open(f.ctx, f.entry, f.fetcher, offset, length)
	case needsSums(f.fetcher.request.ID, f.info.Version):
		slot, err := f.fetcher.openSlot(f.ctx, f.info, offset, length)
		if err != nil {
			return err
		}
		f.stream = slot
	default:
		body, err := f.fetcher.fetchOnce(f.ctx, f.info, offset, length)
		if err != nil {
			return err
		}
		f.stream = &download{ReadCloser: body}
	}
	f.next, f.end = offset, offset+length
	return nil
}

// closeStream ends the stream that is open.
func (f *File) closeStream() {
	if f.stream != nil {
		_ = f.stream.Close() // all that counts was read
		f.stream = nil
	}
}

// firstRead bounds the bytes of a download that are waited for: small files come whole, and
// checked.
const firstRead = 32 << 10

// download is a range of a file that a server sends to this request alone.
type download struct {
	io.ReadCloser
	begun bool
}

// From implements stream.
func (d *download) From() cache.From { return cache.FromOrigin }

// Next implements stream. It waits for the first bytes. All others are waited for where they are
// copied, so that a slow client holds no buffer.
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
