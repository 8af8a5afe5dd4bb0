package origin

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
)

// findCached is Find for a gateway that keeps what it fetches.
func (a *Resolver) findCached(r *Request, localErr error) error {
	if err := a.waitApplied(r); err != nil {
		return err
	}
	known, err := a.getFresh(r, localErr)
	if !errors.Is(err, cache.ErrMiss) {
		return err
	}
	id, bySource := r.ID.Clone(), fdfs.NamesSource(known.File)
	var c *candidates
	if known.File == "" {
		now := a.decide(id, localErr, r.Redirected, r.Now)
		if c = &now; len(c.servers) == 0 {
			return c.err
		}
		bySource = c.bySource
	}
	fetcher := a.newFetcher(r, id, bySource, localErr, c)
	entry, err := a.get(r, localErr, fetcher, c)
	if err != nil {
		return a.answer(r.ID, err, r.Now)
	}
	r.File.begin(a, r, fetcher)
	r.File.entry = entry
	return nil
}

// waitApplied waits until the cache may be used, as long as the client of a request is there.
func (a *Resolver) waitApplied(r *Request) error {
	if a.o.Purges.IsCurrent() {
		return nil
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done, err := r.Client.Wait(r.ID.Group, func() { cancel(ErrClientGone) })
	if err != nil {
		return err
	}
	defer done()
	a.o.Purges.WaitApplied(ctx)
	return context.Cause(ctx)
}

// getFresh answers with what the cache knows, where nothing has to be asked: else it is
// cache.ErrMiss, with what is known all the same. It allocates nothing for a file that is asked for
// again. The source is made when bytes are missing.
func (a *Resolver) getFresh(r *Request, localErr error) (cache.Entry, error) {
	if r.Redirected { // it was sent here for the files of this host
		return cache.Entry{}, cache.ErrMiss
	}
	entry, err := a.peek(r, false, localErr)
	if r.ID.Kind == fdfs.KindTrunk && errors.Is(err, cache.ErrMiss) && entry.File == "" {
		entry, err = a.peek(r, true, localErr)
	}
	switch {
	case errors.Is(err, cache.ErrMiss):
		return entry, err
	case err != nil:
		return entry, a.answer(r.ID, err, r.Now)
	}
	r.File.a, r.File.req, r.File.local, r.File.entry = a, r, localErr, entry
	return entry, nil
}

// peek asks the cache for what it knows.
func (a *Resolver) peek(r *Request, bySource bool, localErr error) (cache.Entry, error) {
	r.name = r.ID.AppendKey(r.name[:0], bySource)
	o := cache.GetOptions{Hint: cache.NoHint, MaxAge: maxAge(localErr)}
	name := unsafe.String(unsafe.SliceData(r.name), len(r.name)) // Get keeps no file's name
	return a.o.Cache.Get(context.Background(), name, nil, o)
}

// localMaxAge is how old the knowledge may be that another host has a file of a group whose store
// paths are here: it was perhaps here in between, and deleted everywhere.
const localMaxAge = time.Second

// maxAge bounds the age of what the cache knows of a file; 0 where the cache's own bounds do.
func maxAge(localErr error) time.Duration {
	if errors.Is(localErr, fdfs.ErrNoFile) {
		return localMaxAge
	}
	return 0
}

// get asks the cache for a request, as long as its client is there.
func (a *Resolver) get(r *Request, localErr error, fetcher *fetcher, c *candidates) (cache.Entry, error) {
	ctx, cancelCause := context.WithCancelCause(context.Background())
	defer cancelCause(nil)
	ctx, cancel := context.WithTimeout(ctx, a.o.StatTimeout)
	defer cancel()
	done, err := r.Client.Wait(waitedFor(r.ID, c), func() { cancelCause(ErrClientGone) })
	if err != nil {
		return cache.Entry{}, err
	}
	defer done()
	o := cache.GetOptions{Hint: r.Client.Hint(), MaxAge: maxAge(localErr)}
	return a.o.Cache.Get(ctx, fetcher.wanted.Key(), fetcher, o)
}

// waitedFor names the source that a request waits for: the one that is asked first or, for a file
// that is known, its group.
func waitedFor(id fdfs.FileID, c *candidates) string {
	if c == nil || len(c.servers) == 0 {
		return id.Group
	}
	return c.servers[0].Addr()
}
