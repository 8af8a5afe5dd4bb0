package origin

import (
	"context"
	"errors"
	"io"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
)

// Prefetch brings a file that is not on this host into the cache, whole; id is canonical, localErr
// says why the file is not here. It returns its size, and where it was: "cached" when it was in the
// cache already, else "fetched". The errors are those of Find, and ErrNotCached.
func (a *Resolver) Prefetch(ctx context.Context, id fdfs.FileID, localErr error,
	now time.Time) (size int64, where string, err error) {
	if a.o.Sources == nil || a.o.Cache == nil || a.o.Redirect {
		return 0, "", ErrNotCached
	}
	c := a.decide(id, localErr, false, now)
	if len(c.servers) == 0 {
		return 0, "", c.err
	}
	f := a.newFetcher(&Request{Now: now, Port: a.o.Port}, id, c.bySource, localErr, &c)
	size, where, err = a.prefetch(ctx, f)
	if err != nil {
		err = a.answer(id, err, now)
	}
	return size, where, err
}

// prefetch reads a file through the cache.
func (a *Resolver) prefetch(ctx context.Context, f *fetcher) (size int64, where string, err error) {
	a.o.Running.Add(1)
	defer a.o.Running.Add(-1)
	a.o.Purges.WaitApplied(ctx)
	entry, err := a.o.Cache.Get(ctx, f.wanted.Key(), f, cache.GetOptions{})
	if err != nil {
		return 0, "", err
	}
	stream := a.o.Cache.Open(ctx, entry, f, 0, entry.Version.Size)
	defer func() { err = errors.Join(err, stream.Close()) }()
	where = "cached"
	for {
		chunk, err := stream.Next(cache.SegmentSize)
		if from := stream.From(); from == cache.FromOrigin || from == cache.FromPeer {
			where = "fetched"
		}
		switch {
		case err == io.EOF:
			return size, where, nil
		case err != nil:
			return size, "", err
		}
		size += chunk.Length
	}
}
