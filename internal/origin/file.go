package origin

import (
	"context"
	"errors"
	"io"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/storage"
)

// File is a file on other hosts during one request. The zero File is none.
type File struct {
	a      *Resolver
	wanted Wanted
	client Client
	ctx    context.Context         // of the fetches of this one request; ended by Close
	cancel context.CancelCauseFunc // nil until something may be fetched

	// Where each request fetches for itself:
	info    storage.Info
	servers []storage.Server

	// Where the file comes through the cache:
	entry  cache.Entry  // File is empty without a cache
	source *cacheSource // nil until it may be needed
	req    *Request     // to make the source of
	local  error        // why the file is not here
	pinned Pinned
}

// Stream is the content of a file from an offset on. Its first bytes are there already.
type Stream interface {
	io.ReadCloser
	// Whole is all of it where it is in memory in one piece, else nil. It stays good when the
	// stream is closed.
	Whole() []byte
	// From tells where the first bytes came from.
	From() cache.From
}

// begin begins with a file that may be fetched.
func (f *File) begin(a *Resolver, r *Request, w Wanted, servers []storage.Server) {
	f.Close()
	a.o.Running.Add(1)
	f.a, f.req, f.client, f.wanted, f.servers = a, r, r.Client, w, servers
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
}

// Close ends all fetches. Closing twice, or closing no File, does nothing.
func (f *File) Close() {
	if f.cancel != nil {
		f.cancel(nil)
		f.a.o.Running.Add(-1)
	}
	if f.a != nil {
		f.pinned.Release()
		*f = File{}
	}
}

// wait counts the request among those that wait for a source, and ends its fetches when its client
// leaves.
func (f *File) wait(source string) (done func(), err error) {
	return f.client.Wait(source, func() { f.cancel(ErrClientGone) })
}

// isCached tells whether the file comes through the cache.
func (f *File) isCached() bool { return f.entry.File != "" }

// Version is what the file's storage, or the cache, says about it.
func (f *File) Version() content.Version {
	if f.isCached() {
		return f.entry.Version
	}
	return f.info.Version
}

// Stale tells whether what is known of the file has expired.
func (f *File) Stale() bool { return f.isCached() && f.entry.State == cache.Stale }

// Asked tells whether another host was asked about the file for this request.
func (f *File) Asked() bool { return !f.isCached() || f.entry.State == cache.Asked }

// Memo is what SetMemo has kept beside the facts that the cache has of the file, or nil.
func (f *File) Memo() any { return f.entry.Memo() }

// SetMemo keeps something small that does not change, until the file is asked about again. Without
// a cache it is not kept.
func (f *File) SetMemo(memo any) { f.entry.SetMemo(memo) }

// Open gives length bytes (more than 0) of the file from offset on, and waits for the first of
// them: until these are here, a failure can be told by a status. The errors are those of Find.
func (f *File) Open(offset, length int64) (Stream, error) {
	if f.isCached() {
		return f.openCached(offset, length)
	}
	id := f.wanted.ID
	stream, err := f.openFirst(offset, length)
	if err != nil {
		return nil, f.a.failure(id, err, f.req.Now)
	}
	f.a.o.Counters.count(nil)
	return stream, nil
}

// OpenNext gives further bytes. It does not wait for them.
func (f *File) OpenNext(offset, length int64) (io.ReadCloser, error) {
	if f.isCached() {
		return &cachedStream{stream: f.openEntry(offset, length)}, nil
	}
	stream, err := f.a.o.Protocol.Open(f.ctx, f.wanted, f.info, offset, length, f.servers)
	if err != nil {
		return nil, err
	}
	return countedStream{stream, f.a.o.Counters}, nil
}

// openFirst checks a trunk file, opens a stream of its own and waits for its first bytes.
func (f *File) openFirst(offset, length int64) (Stream, error) {
	done, err := f.wait(f.servers[0].Addr())
	if err != nil {
		return nil, err
	}
	defer done()
	if err := f.a.checkTrunk(f.ctx, f.wanted, f.info, f.servers); err != nil {
		return nil, err
	}
	stream, err := f.OpenNext(offset, length)
	if err != nil {
		return nil, err
	}
	return begun(stream, length)
}

// firstRead bounds the bytes that are waited for: small files come whole, and checked.
const firstRead = 32 << 10

// begunStream is a stream whose first bytes were read already.
type begunStream struct {
	io.ReadCloser
	first []byte
}

var _ Stream = (*begunStream)(nil)

// Whole implements Stream: the last bytes are checked when they are read.
func (s *begunStream) Whole() []byte { return nil }

// From implements Stream.
func (s *begunStream) From() cache.From { return cache.FromOrigin }

// begun reads the first bytes of a stream that has length bytes. It closes the stream when there
// are none.
func begun(stream io.ReadCloser, length int64) (Stream, error) {
	first := make([]byte, min(length, firstRead))
	for {
		n, err := stream.Read(first)
		if n > 0 {
			return &begunStream{stream, first[:n]}, nil
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, errors.Join(err, stream.Close())
		}
	}
}

// Read implements io.Reader.
func (s *begunStream) Read(p []byte) (int, error) {
	if len(s.first) == 0 {
		return s.ReadCloser.Read(p)
	}
	n := copy(p, s.first)
	if s.first = s.first[n:]; len(s.first) == 0 {
		s.first = nil // it is not kept for the whole download
	}
	return n, nil
}
