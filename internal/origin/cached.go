package origin

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/sendfile"
	"fastdfs-gateway/storage"
)

// findCached is Find for a gateway that keeps what it fetches.
func (a *Resolver) findCached(r *Request, localErr error) error {
	a.o.WaitApplied()
	known, err := a.getFresh(r, localErr)
	if !errors.Is(err, cache.ErrMiss) {
		return err
	}
	id, file := r.ID.CloneText()
	var c *candidates
	if known.File == "" {
		now := a.decide(id, localErr, r.Redirected, r.Now)
		if c = &now; len(c.servers) == 0 {
			return c.err
		}
	}
	source := a.cacheSource(r, id, localErr, c)
	entry, err := a.get(r, file, localErr, source, c)
	if err != nil {
		return a.answer(r.ID, err, r.Now)
	}
	r.File.begin(a, r, source.wanted, nil)
	r.File.source, r.File.entry = source, entry
	return nil
}

// getFresh answers with what the cache knows, where nothing has to be asked: else it is
// cache.ErrMiss, with what is known all the same. It allocates nothing for a file that is asked for
// again. The source is made when bytes are missing.
func (a *Resolver) getFresh(r *Request, localErr error) (cache.Entry, error) {
	if r.Redirected { // it was sent here for the files of this host
		return cache.Entry{}, cache.ErrMiss
	}
	r.name = r.ID.AppendTo(r.name[:0])
	o := cache.GetOptions{Hint: cache.NoHint, MaxAge: maxAge(localErr)}
	name := unsafe.String(unsafe.SliceData(r.name), len(r.name)) // Get keeps no file's name
	entry, err := a.o.Cache.Get(context.Background(), name, nil, o)
	switch {
	case errors.Is(err, cache.ErrMiss):
		return entry, err
	case err != nil:
		return entry, a.answer(r.ID, err, r.Now)
	}
	r.File.a, r.File.req, r.File.local, r.File.entry = a, r, localErr, entry
	return entry, nil
}

// localMaxAge is how old the knowledge may be that another host has a file of a group whose store
// paths are here: it was perhaps here in between, and deleted everywhere.
const localMaxAge = time.Second

// maxAge bounds the age of what the cache knows of a file; 0 where the cache's own bounds do.
func maxAge(localErr error) time.Duration {
	if errors.Is(localErr, storage.ErrNotFound) {
		return localMaxAge
	}
	return 0
}

// get asks the cache for a request, as long as its client is there.
func (a *Resolver) get(r *Request, file string, localErr error, source *cacheSource,
	c *candidates) (cache.Entry, error) {
	ctx, cancelCause := context.WithCancelCause(context.Background())
	defer cancelCause(nil)
	ctx, cancel := context.WithTimeout(ctx, a.o.StatTimeout)
	defer cancel()
	done, err := r.Client.Wait(waitedFor(r.ID, c), func() { cancelCause(ErrClientGone) })
	if err != nil {
		return cache.Entry{}, err
	}
	defer done()
	return a.o.Cache.Get(ctx, file, source, cache.GetOptions{Hint: r.Client.Hint(), MaxAge: maxAge(localErr)})
}

// waitedFor names the source that a request waits for: the one that is asked first or, for a file
// that is known, its group.
func waitedFor(id fdfs.FileID, c *candidates) string {
	if c == nil || len(c.servers) == 0 {
		return id.Group
	}
	return c.servers[0].Addr()
}

// Pinned is a range of a file in memory: Bytes, or, where these are nil, Length bytes from Offset
// on of a file that is in memory.
type Pinned struct{ cache.Pinned }

var _ sendfile.Source = (*Pinned)(nil)

// Fd implements sendfile.Source.
func (p *Pinned) Fd() int { return p.Pinned.Fd }

// Close implements sendfile.Source.
func (p *Pinned) Close() error {
	p.Release()
	return nil
}

// Pin gives length bytes (more than 0) from offset on where they are in memory in one piece; else
// it is nil, and Open brings them. Closing the File releases them.
func (f *File) Pin(offset, length int64) *Pinned {
	if !f.isCached() {
		return nil
	}
	held, ok := f.a.o.Cache.Pin(&f.entry, offset, length)
	if !ok {
		return nil
	}
	f.pinned.Pinned = held
	return &f.pinned
}

// openCached is Open for a file that comes through the cache.
func (f *File) openCached(offset, length int64) (Stream, error) {
	if f.source == nil { // it was a hit
		r, a, local, entry := f.req, f.a, f.local, f.entry
		id, _ := r.ID.CloneText()
		source := a.cacheSource(r, id, local, nil)
		f.begin(a, r, source.wanted, nil)
		f.source, f.entry = source, entry
	}
	done, err := f.wait(waitedFor(f.wanted.ID, nil))
	if err != nil {
		return nil, err
	}
	defer done()
	stream := f.openEntry(offset, length)
	first, err := stream.Next(length)
	if err != nil {
		return nil, f.a.answer(f.wanted.ID, errors.Join(err, stream.Close()), f.req.Now)
	}
	s := &cachedStream{stream: stream, first: first}
	if first.Bytes != nil && first.Length == length {
		s.whole = first.Bytes
	}
	return s, nil
}

// openEntry gives a range of a file in the cache.
func (f *File) openEntry(offset, length int64) *cache.Stream {
	return f.a.o.Cache.Open(f.ctx, f.entry, f.source, offset, length)
}

// cachedStream is a stream out of the cache whose first bytes were asked for already.
type cachedStream struct {
	stream *cache.Stream // not embedded: its WriteTo would leave first out
	first  cache.Stretch // not given yet, if it has a length
	whole  []byte
}

var (
	_ Stream             = (*cachedStream)(nil)
	_ sendfile.Stretcher = (*cachedStream)(nil)
)

// Whole implements Stream.
func (s *cachedStream) Whole() []byte { return s.whole }

// From implements Stream.
func (s *cachedStream) From() cache.From { return s.stream.From() }

// Close implements io.Closer.
func (s *cachedStream) Close() error { return s.stream.Close() }

// Next implements sendfile.Stretcher.
func (s *cachedStream) Next(limit int64) (sendfile.Stretch, error) {
	next, err := s.first, error(nil)
	if s.first = (cache.Stretch{}); next.Length == 0 {
		next, err = s.stream.Next(limit)
	}
	return sendfile.Stretch{
		Bytes: next.Bytes, Fd: next.Fd, Resident: next.Resident, Offset: next.Offset, Length: next.Length,
	}, err
}

// Read implements io.Reader.
func (s *cachedStream) Read(p []byte) (int, error) {
	first := &s.first
	if first.Length == 0 {
		return s.stream.Read(p)
	}
	part := *first
	part.Length = min(part.Length, int64(len(p)))
	n, err := part.Load(p)
	if err != nil {
		return n, fmt.Errorf("cannot read a segment: %w", err)
	}
	if first.Bytes != nil {
		first.Bytes = first.Bytes[n:]
	}
	first.Offset, first.Length = first.Offset+int64(n), first.Length-int64(n)
	return n, nil
}
