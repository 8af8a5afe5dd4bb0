package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/panics"
	"fastdfs-gateway/storage"
)

// fetcher gets one file from other hosts for the cache. It outlives the request that it was made for, because what is fetched is for
// everybody: so it keeps copies of what it needs of it. Where to look is decided when the first question comes, as most files are in
// the cache.
type fetcher struct {
	a      *away
	wanted Wanted
	cause  error // why the file is not here
	marked bool  // by the loop guard
	now    time.Time

	once sync.Once            // guards plan
	plan plan                 // the first one
	anew atomic.Pointer[plan] // the one after storages have moved; nil = they have not

	mu       sync.Mutex       // guards distrust
	distrust []storage.Server // that gave wrong content: asked last from now on
}

var (
	_ cache.Source     = (*fetcher)(nil)
	_ cache.Distruster = (*fetcher)(nil)
)

// fetcher makes one for the request; id is a copy of its own. p is nil when nothing is decided yet.
func (a *away) fetcher(r *request, id fdfs.FileID, cause error, p *plan) *fetcher {
	f := &fetcher{a: a, wanted: Wanted{ID: id, Port: localPort(r.ctx.LocalAddr()), Unchecked: true}, cause: cause, marked: r.marked(), now: r.now}
	if p != nil {
		f.once.Do(func() { f.plan = *p })
	}
	return f
}

// marked tells whether another server has sent the request here, believing that the file is on this host.
func (r *request) marked() bool { return r.target.params.marked() }

// decided is where to look for the file.
func (f *fetcher) decided() *plan {
	if p := f.anew.Load(); p != nil {
		return p
	}
	f.once.Do(func() { f.plan = f.a.decide(f.wanted.ID, f.cause, f.marked, f.now) })
	return &f.plan
}

// Name implements cache.Source: a storage's load is that of the first one which is asked.
func (f *fetcher) Name() string {
	if servers := f.decided().servers; len(servers) > 0 {
		return servers[0].Addr()
	}
	return f.wanted.ID.Group
}

// SourceForPeer makes what fetches a file for another gateway. It is cache.ErrNotHere for the groups
// of this host: that gateway asks their storages itself.
func (h *Handler) SourceForPeer(file string) (cache.Source, error) {
	id, err := fdfs.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cache.ErrNotHere, err)
	}
	a, ok := h.away.(*away)
	if _, err := h.o.Store.Path(id); !ok || a.o.Redirect || !errors.Is(err, storage.ErrNoGroup) {
		return nil, fmt.Errorf("%w: it is not fetched by this gateway", cache.ErrNotHere)
	}
	f := &fetcher{a: a, wanted: Wanted{ID: id, Port: a.o.Port, Unchecked: true}, cause: storage.ErrNoGroup, now: time.Now()}
	if p := f.decided(); len(p.servers) == 0 {
		return nil, fmt.Errorf("%w: %w", cache.ErrNotHere, p.err)
	}
	return f, nil
}

// youngNegativeTTL is how long "no such file" of a storage holds while replication may still bring
// the file.
const youngNegativeTTL = time.Second

// NegativeTTL implements cache.Source. Web servers may be gateways, whose answers change at any
// moment.
func (f *fetcher) NegativeTTL() time.Duration {
	switch {
	case !f.a.h.isYoung(f.wanted.ID, time.Now()):
		return 0
	case f.a.usesWeb():
		return -1
	}
	return youngNegativeTTL
}

// servers are those to ask, those that gave wrong content last. That there are none says nothing about the file: the next request
// for it may be allowed to ask somebody.
func (f *fetcher) servers() ([]storage.Server, error) {
	p := f.decided()
	if len(p.servers) == 0 {
		return nil, fmt.Errorf("nobody to ask: %w", p.err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	servers := slices.Clone(p.servers)
	slices.SortStableFunc(servers, func(x, y storage.Server) int {
		return btoi(slices.Contains(f.distrust, x)) - btoi(slices.Contains(f.distrust, y))
	})
	return servers, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Distrust implements cache.Distruster: whoever is asked first gave what was wrong.
func (f *fetcher) Distrust(error) {
	servers, err := f.servers()
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.distrust = append(f.distrust, servers[0])
}

// Stat implements cache.Source.
func (f *fetcher) Stat(ctx context.Context) (v cache.Version, err error) {
	defer panics.ToError(&err, "asking for a file")
	servers, err := f.servers()
	if err != nil {
		return cache.Version{}, err
	}
	info, err := f.stat(ctx, servers)
	if f.moved(ctx, err) {
		if servers, err = f.servers(); err == nil {
			info, err = f.stat(ctx, servers)
		}
	}
	if err != nil {
		return cache.Version{}, f.failed(err)
	}
	return versionOf(f.wanted.ID, info), nil
}

// moved tells whether other servers are to be asked, since none of those before could be reached
// and the lists have changed.
func (f *fetcher) moved(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	p, ok := f.a.moved(f.wanted.ID, f.cause, f.marked, f.now, f.decided().servers, err)
	if ok {
		f.anew.Store(&p)
	}
	return ok
}

// stat asks for the file within the time that it may take.
func (f *fetcher) stat(ctx context.Context, servers []storage.Server) (storage.Info, error) {
	return f.a.stat(ctx, f.want(), servers, f.a.o.StatTimeout)
}

// want is the file with its target for web servers, and with a token that is good now: they check tokens too, and this may be long
// after the request.
func (f *fetcher) want() Wanted {
	w := f.wanted
	if f.a.usesWeb() {
		w.Target = f.a.h.webTarget(w.ID, nil, time.Now())
	}
	return w
}

// usesWeb tells whether files are fetched from web servers, which are asked for targets: storages are asked for ids.
func (a *away) usesWeb() bool {
	_, storages := a.o.Origin.(StorageOrigin)
	return !storages
}

// Fetch implements cache.Source.
func (f *fetcher) Fetch(ctx context.Context, want *cache.Version, offset, length int64) (v cache.Version, stream io.ReadCloser, err error) {
	defer panics.ToError(&err, "fetching a file")
	servers, err := f.servers()
	if err != nil {
		return cache.Version{}, nil, err
	}
	v, stream, err = f.fetch(ctx, want, offset, length, servers)
	if f.moved(ctx, err) {
		if servers, err = f.servers(); err == nil {
			v, stream, err = f.fetch(ctx, want, offset, length, servers)
		}
	}
	if err != nil && ctx.Err() == nil {
		err = f.failed(err)
	}
	return v, stream, err
}

// fetch asks the servers for bytes.
func (f *fetcher) fetch(ctx context.Context, want *cache.Version, offset, length int64, servers []storage.Server) (cache.Version, io.ReadCloser, error) {
	id := f.wanted.ID
	if want == nil && id.Immutable() && !storage.MayBeLink(id) && offset < id.Size {
		// The id tells size, time and CRC32: a download needs no request for them before it. Where
		// all storages answer it with "not found" the file is not there; other failures are
		// explained by the request for size and time.
		v := versionOf(id, storage.Info{Size: id.Size, ModTime: time.Unix(id.Created, 0), CRC32: id.CRC32})
		stream, err := f.open(ctx, v, offset, length, servers)
		if err == nil || ctx.Err() != nil || errors.Is(err, storage.ErrNotFound) {
			return v, stream, err
		}
	}
	if want == nil {
		info, err := f.stat(ctx, servers)
		if err != nil {
			return cache.Version{}, nil, err
		}
		v := versionOf(id, info)
		want = &v
	}
	stream, err := f.open(ctx, *want, offset, length, servers)
	return *want, stream, err
}

// failed counts a failure and says to the cache what it means.
func (f *fetcher) failed(err error) error {
	f.a.count(err)
	return asCacheError(err)
}

// open fetches bytes of a version.
func (f *fetcher) open(ctx context.Context, v cache.Version, offset, length int64, servers []storage.Server) (io.ReadCloser, error) {
	if length = min(length, v.Size-offset); length <= 0 {
		return io.NopCloser(eof{}), nil
	}
	if v.Size > cache.SegmentSize {
		if err := f.a.checkTrunk(ctx, f.want(), infoOf(v), servers); err != nil {
			return nil, err
		}
	}
	f.a.o.Running.Add(1)
	stream, err := f.a.o.Origin.Open(ctx, f.want(), infoOf(v), offset, length, servers)
	if err != nil {
		f.a.o.Running.Add(-1)
		return nil, err
	}
	f.a.count(nil)
	return &fetch{ReadCloser: countedStream{stream, f.a.h.o.Metrics}, a: f.a}, nil
}

// fetch is a download for the cache.
type fetch struct {
	io.ReadCloser
	a    *away
	once sync.Once
}

func (f *fetch) Read(p []byte) (n int, err error) {
	defer panics.ToError(&err, "reading from another host")
	n, err = f.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = asCacheError(err)
	}
	return n, err
}

func (f *fetch) Close() error {
	f.once.Do(func() { f.a.o.Running.Add(-1) })
	return f.ReadCloser.Close()
}

// eof is a reader of nothing.
type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// asCacheError says to the cache what an error means; the error stays what it was.
func asCacheError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storage.ErrNotFound):
		return fmt.Errorf("%w: %w", cache.ErrNotFound, err)
	case errors.Is(err, storage.ErrChanged):
		return fmt.Errorf("%w: %w", cache.ErrChanged, err)
	case errors.Is(err, storage.ErrCRC):
		return fmt.Errorf("%w: %w", cache.ErrCorrupt, err)
	}
	return err
}

// versionOf is what the cache knows a file's content by.
func versionOf(id fdfs.FileID, info storage.Info) cache.Version {
	v := cache.Version{Size: info.Size, ModTime: info.ModTime.UnixNano(), Immutable: id.Immutable(), Linked: info.Linked}
	if v.Immutable && !v.Linked {
		v.CRC32 = id.CRC32
	}
	return v
}

// infoOf is the way back.
func infoOf(v cache.Version) storage.Info {
	return storage.Info{Size: v.Size, ModTime: time.Unix(0, v.ModTime), CRC32: v.CRC32, Linked: v.Linked}
}
