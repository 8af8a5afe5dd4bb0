package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/sendfile"
	"fastdfs-gateway/storage"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

// findCached is find for a gateway that keeps what it fetches.
func (a *away) findCached(r *request, cause error) error {
	a.waitApplied()
	known, err := a.getFresh(r, cause)
	if !errors.Is(err, cache.ErrMiss) {
		return err
	}
	id, file := r.id.CloneText()
	var p *plan
	if known.File == "" {
		now := a.decide(id, cause, r.marked(), r.now)
		if p = &now; len(p.servers) == 0 {
			return p.err
		}
	}
	source := a.fetcher(r, id, cause, p)
	entry, err := a.get(r, file, cause, source, p)
	if err != nil {
		return a.cacheFailure(r, err)
	}
	r.stale = entry.State == cache.Stale
	r.remote.beginCached(a, source, entry)
	r.source, r.found = sourceMemory, foundRemote(r.id, infoOf(entry.Version))
	if entry.State == cache.Asked {
		r.source = sourceOrigin
	}
	return nil
}

// waitApplied returns when purges of the fleet are applied to the cache.
func (a *away) waitApplied() {
	if a.h.o.WaitApplied != nil {
		a.h.o.WaitApplied()
	}
}

// getFresh answers with what the cache knows, where nothing has to be asked: else it is
// cache.ErrMiss, with what is known all the same. It allocates nothing for a file that is asked for
// again. The source is made when bytes are missing.
func (a *away) getFresh(r *request, cause error) (cache.Entry, error) {
	if r.marked() { // it was sent here for the files of this host
		return cache.Entry{}, cache.ErrMiss
	}
	r.text = r.id.AppendTo(r.text[:0])
	o := cache.GetOptions{Hint: cache.NoHint, MaxAge: maxAge(cause)}
	entry, err := a.o.Cache.Get(context.Background(), bytesString(r.text), nil, o)
	switch {
	case errors.Is(err, cache.ErrMiss):
		return entry, err
	case err != nil:
		return entry, a.cacheFailure(r, err)
	}
	r.remote.away, r.remote.cause, r.remote.entry = a, cause, entry
	r.stale = entry.State == cache.Stale
	r.source, r.ready = sourceMemory, a.h.prepareEntry(&entry, r.id)
	r.found = r.ready.found
	return entry, nil
}

// localMaxAge is how old the knowledge may be that another host has a file of a group whose store
// paths are here: it was perhaps here in between, and deleted everywhere.
const localMaxAge = time.Second

// maxAge bounds the age of what the cache knows of a file; 0 where the cache's own bounds do. cause
// says why it is not here.
func maxAge(cause error) time.Duration {
	if errors.Is(cause, storage.ErrNotFound) {
		return localMaxAge
	}
	return 0
}

// get asks the cache for a request, as long as its client is there.
func (a *away) get(r *request, file string, cause error, source *fetcher, p *plan) (cache.Entry, error) {
	ctx, gone := context.WithCancelCause(context.Background())
	defer gone(nil)
	ctx, cancel := context.WithTimeout(ctx, a.o.StatTimeout)
	defer cancel()
	done, err := r.wait(waitedFor(r.id, p), gone)
	if err != nil {
		return cache.Entry{}, err
	}
	defer done()
	return a.o.Cache.Get(ctx, file, source, cache.GetOptions{Hint: r.hint(), MaxAge: maxAge(cause)})
}

// waitedFor names the source that a request waits for: the one that is asked first or, for a file
// that is known, its group.
func waitedFor(id fdfs.FileID, p *plan) string {
	if p == nil || len(p.servers) == 0 {
		return id.Group
	}
	return p.servers[0].Addr()
}

// cacheFailure is the answer when the cache does not give the file.
func (a *away) cacheFailure(r *request, err error) error {
	var answer *refusal
	switch {
	case errors.As(err, &answer):
		return answer
	case errors.Is(err, cache.ErrNotFound):
		err = errors.Join(storage.ErrNotFound, err)
	case errors.Is(err, cache.ErrChanged):
		return errors.Join(storage.ErrChanged, err)
	}
	return a.answer(r.id, err, r.now)
}

// hint is the first byte of the file that the answer needs, as far as the request alone tells.
func (r *request) hint() int64 {
	h := &r.ctx.Request.Header
	if r.ctx.IsHead() || len(h.Peek(fasthttp.HeaderIfNoneMatch)) > 0 || len(h.Peek(fasthttp.HeaderIfModifiedSince)) > 0 {
		return cache.NoHint
	}
	if start, ok := seekOffset(r.target.params.start); ok && r.h.o.FLVExtension != "" && r.id.Ext() == r.h.o.FLVExtension {
		return start
	}
	ranges, ok := bytes.CutPrefix(h.Peek(fasthttp.HeaderRange), []byte("bytes="))
	if !ok {
		return 0
	}
	first, _, _ := bytes.Cut(ranges, []byte{'-'})
	if n, err := strconv.ParseInt(string(bytes.TrimSpace(first)), 10, 64); err == nil && n >= 0 {
		return n
	}
	return cache.NoHint // a suffix, or nothing that can be read
}

// sourcesOf are the names in the metrics and in X-Cache of where bytes come from.
var sourcesOf = map[cache.From]string{
	cache.FromMemory: sourceMemory, cache.FromDisk: sourceDisk, cache.FromPeer: sourcePeer, cache.FromOrigin: sourceOrigin,
}

// openCached makes the body one of a file in the cache, and waits for its first bytes: until these are here, a failure can be told
// by a status. A small file in memory becomes a body in memory.
func (r *request) openCached() error {
	if r.openMemory() {
		return nil
	}
	if f := &r.remote; f.fetcher == nil { // it was a hit
		id, _ := r.id.CloneText()
		f.beginCached(f.away, f.away.fetcher(r, id, f.cause, nil), f.entry)
	}
	b := &r.body
	b.Open = r.remote.openCached
	for i := range b.Pieces {
		p := &b.Pieces[i]
		if p.Length == 0 {
			continue
		}
		stream, first, err := r.beginCached(p.Offset, p.Length)
		if err != nil {
			a := r.remote.away
			r.closeFile()
			return a.cacheFailure(r, err)
		}
		r.source = sourcesOf[stream.From()]
		r.setXCache()
		b.Stream = &begunStretches{stream: stream, first: first}
		if first.Bytes != nil && first.Length == p.Length && len(b.Pieces) == 1 {
			b.Memory, p.Offset, b.Open, b.Stream = first.Bytes, 0, nil, nil
			return stream.Close()
		}
		return nil
	}
	return nil
}

// beginCached opens a stretch of the file, and waits for its first bytes.
func (r *request) beginCached(offset, length int64) (*cache.Stream, cache.Stretch, error) {
	f := &r.remote
	done, err := r.wait(waitedFor(f.wanted.ID, nil), f.cancel)
	if err != nil {
		return nil, cache.Stretch{}, err
	}
	defer done()
	stream := f.cached(offset, length)
	first, err := stream.Next(length)
	if err != nil {
		return nil, first, errors.Join(err, stream.Close())
	}
	return stream, first, nil
}

// openMemory makes the body one in memory, or of a file that is, if all of it is there in one piece.
func (r *request) openMemory() bool {
	b := &r.body
	if len(b.Pieces) != 1 {
		return false
	}
	p := &b.Pieces[0]
	held, ok := r.remote.away.o.Cache.Pin(&r.remote.entry, p.Offset, p.Length)
	if !ok {
		return false
	}
	if held.Bytes != nil {
		b.Memory, p.Offset = held.Bytes, 0
		held.Release()
	} else {
		r.remote.held.Pinned = held
		b.Source, b.Resident, p.Offset = &r.remote.held, held.Resident, held.Offset
	}
	r.source = sourceMemory
	r.setXCache()
	return true
}

// pinnedSource is a stretch of a file in memory as the source of a body.
type pinnedSource struct{ cache.Pinned }

var _ sendfile.Source = (*pinnedSource)(nil)

// Fd implements sendfile.Source.
func (s *pinnedSource) Fd() int { return s.Pinned.Fd }

// Close implements sendfile.Source.
func (s *pinnedSource) Close() error {
	s.Release()
	return nil
}

// cached gives a stretch of a file in the cache.
func (f *remoteFile) cached(offset, length int64) *cache.Stream {
	return f.away.o.Cache.Open(f.ctx, f.entry, f.fetcher, offset, length)
}

// openCached is cached as a body takes it.
func (f *remoteFile) openCached(offset, length int64) (io.ReadCloser, error) {
	return &begunStretches{stream: f.cached(offset, length)}, nil
}

// begunStretches is a stream out of the cache whose first bytes were asked for already.
type begunStretches struct {
	stream *cache.Stream
	first  cache.Stretch // not given yet, if it has a length
}

var _ sendfile.Stretcher = (*begunStretches)(nil)

// Next implements sendfile.Stretcher.
func (s *begunStretches) Next(limit int64) (sendfile.Stretch, error) {
	next, err := s.first, error(nil)
	if s.first = (cache.Stretch{}); next.Length == 0 {
		next, err = s.stream.Next(limit)
	}
	return sendfile.Stretch{Bytes: next.Bytes, Fd: next.Fd, Resident: next.Resident, Offset: next.Offset, Length: next.Length}, err
}

// Read implements io.Reader.
func (s *begunStretches) Read(p []byte) (int, error) {
	first := &s.first
	if first.Length == 0 {
		return s.stream.Read(p)
	}
	n := 0
	if first.Bytes != nil {
		n = copy(p, first.Bytes)
		first.Bytes = first.Bytes[n:]
	} else {
		var err error = unix.EINTR
		for err == unix.EINTR {
			n, err = unix.Pread(first.Fd, p[:min(int64(len(p)), first.Length)], first.Offset)
		}
		if err != nil || n == 0 {
			return 0, fmt.Errorf("cannot read a segment: %w", errors.Join(err, io.ErrUnexpectedEOF))
		}
	}
	first.Offset, first.Length = first.Offset+int64(n), first.Length-int64(n)
	return n, nil
}

// Close implements io.Closer.
func (s *begunStretches) Close() error { return s.stream.Close() }
