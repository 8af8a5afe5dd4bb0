package gateway

import (
	"context"
	"errors"
	"io"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage"
)

// errNotCached is the error of Prefetch where nothing is kept.
var errNotCached = errors.New("files of other hosts are not kept by this gateway")

// Prefetch brings a file into the cache, whole. It returns its size, and where it is now: "local" when it is a file of this host,
// "cached" when it was in the cache already, else "fetched".
func (h *Handler) Prefetch(ctx context.Context, idText string, now time.Time) (size int64, where string, err error) {
	id, err := fdfs.Parse(idText)
	if err != nil {
		return 0, "", err
	}
	file, err := h.o.Store.Open(id)
	if err == nil {
		return file.Size(), "local", file.Close()
	}
	if errors.Is(err, storage.ErrSlotContent) {
		return 0, "", err
	}
	a, ok := h.away.(*away)
	if !ok || a.o.Cache == nil || a.o.Redirect {
		return 0, "", errNotCached
	}
	f := &fetcher{a: a, wanted: Wanted{ID: id, Port: a.o.Port}, cause: err, now: now}
	if p := f.decided(); len(p.servers) == 0 {
		return 0, "", p.err
	}
	return a.prefetch(ctx, f)
}

// prefetch reads a file through the cache.
func (a *away) prefetch(ctx context.Context, f *fetcher) (size int64, where string, err error) {
	a.o.Running.Add(1)
	defer a.o.Running.Add(-1)
	defer func() { err = a.prefetchFailure(f, err) }()
	a.waitApplied()
	entry, err := a.o.Cache.Get(ctx, f.wanted.ID.String(), f, cache.GetOptions{})
	if err != nil {
		return 0, "", err
	}
	stream := a.o.Cache.Open(ctx, entry, f, 0, entry.Version.Size)
	defer func() { err = errors.Join(err, stream.Close()) }()
	where = "cached"
	for {
		stretch, err := stream.Next(cache.SegmentSize)
		if from := stream.From(); from == cache.FromOrigin || from == cache.FromPeer {
			where = "fetched"
		}
		switch {
		case err == io.EOF:
			return size, where, nil
		case err != nil:
			return size, "", err
		}
		size += stretch.Length
	}
}

// prefetchFailure says for people why a file was not fetched.
func (a *away) prefetchFailure(f *fetcher, err error) error {
	var answer *refusal
	switch {
	case err == nil, errors.As(err, &answer):
		return err
	case errors.Is(err, cache.ErrNotFound):
		err = errors.Join(storage.ErrNotFound, err)
	}
	return a.answer(f.wanted.ID, err, f.now)
}
