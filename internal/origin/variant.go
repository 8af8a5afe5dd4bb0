package origin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/variant"
	"fastdfs-gateway/storage/local"
)

// A variant of a file is an entry of the cache of its own, and takes the path of a file of another
// host: look-up, owner, lease, peers, purge, expiry. Only its source differs: the fetcher makes the
// variant from the file, which it reads from the store of this host, or through the cache.

// Files opens the files of this host.
type Files interface {
	Open(id fdfs.FileID) (*local.File, error)
}

// appendKey appends the key of the file, or of its variant.
func (r *Request) appendKey(b []byte, bySource bool) []byte {
	b = r.ID.AppendKey(b, bySource)
	if r.Variant != "" {
		b = append(append(b, '/'), r.Variant...)
	}
	return b
}

// key returns the key of the file in the cache, or of its variant.
func (f *fetcher) key() string {
	if f.variant != "" {
		return variant.Key(f.request.Key(), f.variant)
	}
	return f.request.Key()
}

// mayHaveVariant reports whether a variant of a file can be found, which needs the cache.
func (a *Resolver) mayHaveVariant(localErr error) bool {
	return a.o.Maker != nil && a.o.Cache != nil && (localErr == nil || !a.o.Redirect)
}

// VersionHere returns the version of a file of this host, which other hosts report too.
func VersionHere(f *local.File, now time.Time) content.Version {
	v := content.Version{Size: f.Size(), ModTime: content.Nanoseconds(f.ModTime().Unix()), Immutable: !f.Mutable()}
	return v.AsOf(now)
}

// isReplaced reports whether a variant was made of another version of the file of this host, and
// then forgets it.
func (a *Resolver) isReplaced(r *Request, e cache.Entry) bool {
	if r.Variant == "" || r.Here == (content.Version{}) || variant.IsOf(e.Version, r.Here) {
		return false
	}
	a.o.Cache.Purge(cache.Match(e.File))
	return true
}

// Kept returns the size of a variant in the cache, in bytes; 0: none can be made of the file. ok is
// false if the cache does not have it.
func (a *Resolver) Kept(id fdfs.FileID, name string) (size int64, ok bool) {
	if a.o.Cache == nil {
		return 0, false
	}
	r := Request{ID: id, Variant: name}
	known, expires, ok := a.o.Cache.Meta(string(r.appendKey(nil, false)))
	return known.Version.Size, ok && time.Now().Before(expires)
}

// openFile opens the file of a variant. Without content it returns the version only.
func (f *fetcher) openFile(ctx context.Context, withContent bool) (content.Version, io.ReadCloser, error) {
	here, err := f.a.o.Files.Open(f.request.ID)
	if err != nil {
		return f.openElsewhere(ctx, err, withContent, 0)
	}
	v := VersionHere(here, time.Now())
	if !withContent {
		return v, http.NoBody, here.Close()
	}
	return v, &localReader{f: f, ctx: ctx, file: here, version: v}, nil
}

// openElsewhere opens the file of a variant at other hosts, through the cache, from an offset on.
// If they do not have it either, and the store is not available, that is the cause.
func (f *fetcher) openElsewhere(ctx context.Context, localErr error, withContent bool, offset int64) (
	content.Version, io.ReadCloser, error) {
	isDown := errors.Is(localErr, local.ErrUnavailable)
	if !isDown && !errors.Is(localErr, fdfs.ErrNoFile) && !errors.Is(localErr, local.ErrNoGroup) ||
		f.a.o.Sources == nil {
		return content.Version{}, nil, localErr
	}
	whole := &fetcher{a: f.a, request: f.request, localErr: localErr, now: f.now}
	o := cache.GetOptions{Hint: cache.NoHint, MaxAge: maxAge(localErr)}
	if withContent {
		o.Hint = offset
	}
	e, err := f.a.o.Cache.Get(ctx, whole.key(), whole, o)
	if err != nil && isDown && ctx.Err() == nil {
		err = localErr
	}
	if err != nil || !withContent {
		return e.Version, http.NoBody, err
	}
	stream := f.a.o.Cache.Open(ctx, e, whole, offset, e.Version.Size-offset)
	return e.Version, stream, nil
}

// isHere returns nil if the file is in the store of this host, else the error of opening it.
func (a *Resolver) isHere(id fdfs.FileID) error {
	f, err := a.o.Files.Open(id)
	if err != nil {
		return err
	}
	return f.Close()
}

// localReader reads a file of this host. If its disk fails, other hosts give the rest.
type localReader struct {
	f       *fetcher
	ctx     context.Context // of the variant
	file    *local.File
	version content.Version
	offset  int64
	rest    io.ReadCloser // of other hosts; nil = the disk has not failed
}

// Read implements io.Reader.
func (r *localReader) Read(p []byte) (n int, err error) {
	switch {
	case r.rest != nil:
		return r.rest.Read(p)
	case r.offset == r.version.Size:
		return 0, io.EOF
	}
	n, err = r.file.ReadPart(p, r.offset)
	if r.offset += int64(n); n > 0 || !errors.Is(err, local.ErrUnavailable) {
		return n, err
	}
	v, rest, err := r.f.openElsewhere(r.ctx, err, true, r.offset)
	if err == nil && !v.Resembles(r.version) {
		err = errors.Join(fdfs.ErrFileChanged, rest.Close())
	}
	if err != nil {
		return 0, err
	}
	r.rest = rest
	return rest.Read(p)
}

// Close implements io.Closer.
func (r *localReader) Close() error {
	err := r.file.Close()
	if r.rest != nil {
		err = errors.Join(err, r.rest.Close())
	}
	return err
}

// statVariant is Stat for a variant.
func (f *fetcher) statVariant(ctx context.Context, known content.Version) (content.Version, error) {
	v, body, err := f.openFile(ctx, false)
	switch {
	case err != nil:
		return v, err
	case known.Size == 0 || !variant.IsOf(known, v): // none could be made: perhaps one can now
		err = fdfs.ErrFileChanged
	}
	return known, errors.Join(err, body.Close())
}

// fetchVariant is Fetch for a variant.
func (f *fetcher) fetchVariant(ctx context.Context, want *content.Version, offset, length int64) (
	content.Version, io.ReadCloser, error) {
	spec, ok := variant.ParseName(f.variant)
	if !ok || f.a.o.Maker == nil {
		return content.Version{}, nil, fmt.Errorf("%w: no such variants are made here", cache.ErrNotHere)
	}
	made, err := f.a.o.Maker.Make(ctx, variant.Source{
		Name: f.request.Key(),
		Open: func(ctx context.Context) (content.Version, io.ReadCloser, error) { return f.openFile(ctx, true) },
	}, spec)
	switch {
	case errors.Is(err, variant.ErrBusy):
		return content.Version{}, nil, fmt.Errorf("%w: %w", cache.ErrBusy, err)
	case err != nil:
		return content.Version{}, nil, err
	case want != nil && *want != made.Version:
		return content.Version{}, nil, errors.Join(fdfs.ErrFileChanged, made.Close())
	}
	part := made.Body[min(offset, int64(len(made.Body))):]
	return made.Version, &madeReader{bytes.NewReader(part[:min(length, int64(len(part)))]), made}, nil
}

// madeReader reads a variant.
type madeReader struct {
	*bytes.Reader
	io.Closer
}
