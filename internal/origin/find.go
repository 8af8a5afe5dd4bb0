package origin

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
)

// Find finds a file. localErr is the reason for which the file is not here: fdfs.ErrNoFile in a
// group of this host, local.ErrNoGroup for a file of another group, local.ErrUnavailable if a disk
// cannot be read; nil for a variant of a file that is here. Either r.File is the file, which the
// caller closes, or redirect is the host to whose web server the client must be sent. The error is
// one of this package, or fdfs.ErrFileChanged: then Find may be called again.
//
// Find is the whole path of a miss up to the content:
//
//	look up in the cache -> choose the hosts to ask -> wait for a place ->
//	ask for size and time, through the cache if there is one
//
// Without a place, expired metadata in the cache is used.
//
// File.Open continues it: wait for a place -> fetch, through the cache if there is one. The fetcher
// is the source of both. Explain is the same path with a trace.
func (a *Resolver) Find(r *Request, localErr error) (redirect string, err error) {
	if a.o.Sources == nil && localErr != nil || r.Variant != "" && !a.mayHaveVariant(localErr) && !a.o.Redirect {
		return "", a.missing(r.ID, localErr, r.Now)
	}
	deleted := a.isDeleted(r.ID, localErr, r.Now)
	if deleted && r.trace == nil {
		return "", a.missing(r.ID, localErr, r.Now)
	}
	cached, known := !deleted && a.usesCache(r, localErr), cache.Entry{}
	if cached {
		if known, err = a.lookUp(r, localErr); !errors.Is(err, cache.ErrMiss) {
			return "", err
		}
	}
	f := a.newFetcher(r, localErr, cached)
	if known.File != "" { // expired metadata: the hosts are chosen when the cache asks its source
		f.request.BySource = fdfs.NamesSource(known.File)
	} else if err = f.choose(); err != nil {
		return "", err
	}
	switch {
	case r.Variant != "" && !cached && !a.o.Redirect: // replication may still bring the file
		return "", a.missing(r.ID, localErr, r.Now)
	case r.trace != nil:
		r.trace.fetcher = f
		return "", nil
	case a.o.Redirect && localErr != nil:
		return a.redirect(r, f)
	}
	file := &r.File
	file.beginFetches(a, r, f)
	err = file.wait()
	switch {
	case err == nil:
		err = file.describe(cached)
	case errors.Is(err, ErrTooManyWaiting) && known.File != "" && file.describeExpired() == nil:
		err = nil // the cache asks in the background
	}
	if err != nil {
		file.Close()
		return "", a.responseErr(r.ID, err, r.Now)
	}
	return "", nil
}

// usesCache reports whether a file comes through the cache. A file whose source is this host, and
// that is not here while replication may still bring it, does not: it was deleted, or will be here
// in a moment. A slave file does: it may have been uploaded to another storage, and clients request
// many that do not exist, which the cache remembers for a second (fetcher.NegativeTTL).
func (a *Resolver) usesCache(r *Request, localErr error) bool {
	if a.o.Cache == nil || a.o.Redirect && localErr != nil {
		return false
	}
	if !errors.Is(localErr, fdfs.ErrNoFile) {
		return true
	}
	return r.ID.Kind == fdfs.KindSlave || !a.isOwn(r.ID) || !a.isYoung(r.ID, r.Now.Add(-deletionDelay))
}

// lookUp fills in r.File if the cache has fresh metadata. The error is cache.ErrMiss if a host must
// be asked; then the entry has a File if the cache has expired metadata. A file that is requested
// again costs no allocation: its fetcher is made when bytes are missing.
func (a *Resolver) lookUp(r *Request, localErr error) (cache.Entry, error) {
	if r.Redirected { // redirect=1 requests only files of this host
		return cache.Entry{}, cache.ErrMiss
	}
	entry, err := a.peek(r, false, localErr)
	if r.ID.Kind == fdfs.KindTrunk && errors.Is(err, cache.ErrMiss) && entry.File == "" {
		entry, err = a.peek(r, true, localErr)
	}
	if r.trace != nil {
		r.trace.cache(a, string(r.name)) // the key of the last look-up
	}
	switch {
	case errors.Is(err, cache.ErrMiss):
		return entry, err
	case err != nil:
		return entry, a.responseErr(r.ID, err, r.Now)
	case a.isReplaced(r, entry):
		return cache.Entry{}, cache.ErrMiss
	}
	r.File.a, r.File.req, r.File.local, r.File.entry = a, r, localErr, entry
	return entry, nil
}

// peek returns the metadata in the cache, for the key with or without the source.
func (a *Resolver) peek(r *Request, bySource bool, localErr error) (cache.Entry, error) {
	r.name = r.appendKey(r.name[:0], bySource)
	o := cache.GetOptions{Hint: cache.NoHint, MaxAge: maxAge(localErr)}
	name := unsafe.String(unsafe.SliceData(r.name), len(r.name)) // Get keeps no name without a source
	return a.o.Cache.Get(context.Background(), name, nil, o)
}

// localMaxAge bounds the age of metadata of files whose group has store paths here: since then such
// a file may have been replicated here and deleted on all storages.
const localMaxAge = time.Second

// maxAge returns the bound on the age of metadata in the cache; 0 = only the TTLs of the cache
// bound it.
func maxAge(localErr error) time.Duration {
	if errors.Is(localErr, fdfs.ErrNoFile) {
		return localMaxAge
	}
	return 0
}

// wait counts the request among those that wait for a source, until endWait: from Find to the first
// bytes of Open. If the client disconnects meanwhile, the fetches of the request end.
func (f *File) wait() (err error) {
	if f.waited == nil {
		cancel := f.cancel // of these fetches: f is reused for others
		f.waited, err = f.req.Client.Wait(f.fetcher.awaited(), func() { cancel(ErrClientGone) })
	}
	return err
}

// endWait ends the wait; without one it does nothing.
func (f *File) endWait() {
	if f.waited != nil {
		f.waited()
		f.waited = nil
	}
}

// describe requests size and time of the file.
func (f *File) describe(cached bool) (err error) {
	if !cached {
		f.whole, err = f.fetcher.stat(f.ctx)
		return err
	}
	ctx, cancel := context.WithTimeout(f.ctx, f.a.o.StatTimeout)
	defer cancel()
	o := cache.GetOptions{Hint: f.req.Client.Hint(), MaxAge: maxAge(f.local)}
	f.entry, err = f.a.o.Cache.Get(ctx, f.fetcher.key(), f.fetcher, o)
	return err
}

// describeExpired uses the expired metadata in the cache.
func (f *File) describeExpired() (err error) {
	o := cache.GetOptions{Hint: cache.NoHint, MaxAge: maxAge(f.local), NoWait: true}
	f.entry, err = f.a.o.Cache.Get(f.ctx, f.fetcher.key(), f.fetcher, o)
	return err
}

// redirect returns the host to whose web server the client is redirected. If replicas may be asked,
// the storages are asked for the file first. If none of them reports that it has the file, the
// first one that may have it is returned.
func (a *Resolver) redirect(r *Request, f *fetcher) (host string, err error) {
	to := f.decided().servers[0]
	if len(f.decided().servers) == 1 && !a.o.TryReplicas {
		return to.Host, nil
	}
	done, err := r.Client.Wait(f.awaited(), func() {}) // locate waits for a second at most
	if err != nil {
		return "", err
	}
	defer done()
	err = f.ask(context.Background(), func(servers []client.Server) (err error) {
		to, err = a.locate(f.fetchRequest(), servers)
		return err
	})
	if err != nil {
		switch err := a.responseErr(r.ID, err, r.Now); {
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrNotYet), errors.Is(err, ErrNoLists):
			return "", err
		}
	}
	return to.Host, nil
}
