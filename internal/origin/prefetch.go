package origin

import (
	"context"
	"errors"
	"io"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
)

// waiter is the Client of a request that has no HTTP client.
type waiter struct{ ctx context.Context }

// Wait implements Client.
func (w waiter) Wait(_ string, gone func()) (done func(), err error) {
	stop := context.AfterFunc(w.ctx, gone)
	return func() { stop() }, nil
}

// Hint implements Client.
func (waiter) Hint() int64 { return 0 }

// Prefetch fetches a whole file that is not on this host into the cache, by the path of a request;
// id is canonical, localErr is the reason for which the file is not here. It returns the size of
// the file, and where: "cached" if all of it was in the cache already, otherwise "fetched".
// The errors are those of Find, and ErrNotCached.
func (a *Resolver) Prefetch(ctx context.Context, id fdfs.FileID, localErr error,
	now time.Time) (size int64, where string, err error) {
	if a.o.Sources == nil || a.o.Cache == nil || a.o.Redirect {
		return 0, "", ErrNotCached
	}
	r := &Request{ID: id, Now: now, Port: a.o.Port, Client: waiter{ctx}}
	if _, err = a.Find(r, localErr); err != nil {
		return 0, "", err
	}
	f := &r.File
	defer f.Close()
	if !f.isCached() {
		return 0, "", ErrNotCached
	}
	f.beginFetch()
	cancel := f.cancel
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	if size, where, err = readAll(a.o.Cache.Open(f.ctx, f.entry, f.fetcher, 0, f.Version().Size)); err != nil {
		err = a.responseErr(id, err, now)
	}
	return size, where, err
}

// readAll reads a stream to its end and closes it.
func readAll(s *cache.Stream) (size int64, where string, err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	for {
		chunk, err := s.Next(cache.SegmentSize)
		switch {
		case err == io.EOF && s.Fetched():
			return size, "fetched", nil
		case err == io.EOF:
			return size, "cached", nil
		case err != nil:
			return size, "", err
		}
		size += chunk.Length
	}
}
