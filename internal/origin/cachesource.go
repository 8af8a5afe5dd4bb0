package origin

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

// cacheSource fetches one file from other hosts for the cache. It outlives the request that it was
// made for, because what is fetched is for every client: so it keeps copies of what it needs of it.
// Where to look is decided when it is asked for the first time, as most files are in the cache.
type cacheSource struct {
	a          *Resolver
	wanted     Wanted
	localErr   error // why the file is not here
	redirected bool  // another server has sent the request here
	now        time.Time

	once  sync.Once                  // guards first
	first candidates                 // the first ones
	anew  atomic.Pointer[candidates] // those after storages have moved; nil = they have not

	mu       sync.Mutex       // guards distrust
	distrust []storage.Server // that gave wrong content: asked last from now on
}

var _ cache.Source = (*cacheSource)(nil)

// cacheSource makes one for the request; id is a copy of its own. c is nil when nothing is decided
// yet.
func (a *Resolver) cacheSource(r *Request, id fdfs.FileID, localErr error, c *candidates) *cacheSource {
	f := &cacheSource{
		a: a, wanted: Wanted{ID: id, Port: r.Port, Unchecked: true}, localErr: localErr, redirected: r.Redirected,
		now: r.Now,
	}
	if c != nil {
		f.once.Do(func() { f.first = *c })
	}
	return f
}

// decided are the candidates for the file.
func (f *cacheSource) decided() *candidates {
	if c := f.anew.Load(); c != nil {
		return c
	}
	f.once.Do(func() { f.first = f.a.decide(f.wanted.ID, f.localErr, f.redirected, f.now) })
	return &f.first
}

// Name implements cache.Source: a storage's load is that of the first one which is asked.
func (f *cacheSource) Name() string {
	if servers := f.decided().servers; len(servers) > 0 {
		return servers[0].Addr()
	}
	return f.wanted.ID.Group
}

// SourceForPeer makes what fetches a file for another gateway. It is cache.ErrNotHere for the
// groups of this host: that gateway asks their storages itself.
func (a *Resolver) SourceForPeer(file string) (cache.Source, error) {
	id, err := fdfs.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cache.ErrNotHere, err)
	}
	if _, err := a.o.Store.Path(id); a.o.Redirect || !errors.Is(err, storage.ErrNoGroup) {
		return nil, fmt.Errorf("%w: it is not fetched by this gateway", cache.ErrNotHere)
	}
	r := Request{ID: id, Now: time.Now(), Port: a.o.Port}
	f := a.cacheSource(&r, id, storage.ErrNoGroup, nil)
	if c := f.decided(); len(c.servers) == 0 {
		return nil, fmt.Errorf("%w: %w", cache.ErrNotHere, c.err)
	}
	return f, nil
}

// youngNegativeTTL is how long "no such file" of a storage holds while replication may still bring
// the file.
const youngNegativeTTL = time.Second

// NegativeTTL implements cache.Source. Web servers may be gateways, whose answers change at any
// moment.
func (f *cacheSource) NegativeTTL() time.Duration {
	switch {
	case !f.a.isYoung(f.wanted.ID, time.Now()):
		return 0
	case f.a.usesWeb():
		return -1
	}
	return youngNegativeTTL
}

// servers returns the servers to ask, those that gave wrong content last. Without a server the
// error says nothing about the file: the next request for it may be allowed to ask one.
func (f *cacheSource) servers() ([]storage.Server, error) {
	c := f.decided()
	if len(c.servers) == 0 {
		return nil, fmt.Errorf("no server to ask: %w", c.err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return movedBack(c.servers, func(s storage.Server) bool { return slices.Contains(f.distrust, s) }), nil
}

// Distrust implements cache.Source: the server that is asked first gave wrong content.
func (f *cacheSource) Distrust() {
	servers, err := f.servers()
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.distrust = append(f.distrust, servers[0])
}

// Stat implements cache.Source.
func (f *cacheSource) Stat(ctx context.Context) (v cache.Version, err error) {
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
		f.a.o.Counters.count(err)
		return cache.Version{}, err
	}
	return info.Version, nil
}

// moved tells whether other servers are to be asked, since none of those before could be reached
// and the lists have changed.
func (f *cacheSource) moved(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	c, ok := f.a.moved(f.wanted.ID, f.localErr, f.redirected, f.now, f.decided().servers, err)
	if ok {
		f.anew.Store(&c)
	}
	return ok
}

// stat asks for the file within the time that it may take.
func (f *cacheSource) stat(ctx context.Context, servers []storage.Server) (storage.Info, error) {
	return f.a.stat(ctx, f.want(), servers, f.a.o.StatTimeout)
}

// want is the file with its target for web servers, and with a token that is good now: they check
// tokens too, and this may be long after the request.
func (f *cacheSource) want() Wanted {
	w := f.wanted
	if f.a.usesWeb() {
		w.Target = f.a.o.Targets.Fetch(w.ID, nil, nil, time.Now())
	}
	return w
}

// Fetch implements cache.Source.
func (f *cacheSource) Fetch(ctx context.Context, want *cache.Version, offset, length int64) (v cache.Version,
	stream io.ReadCloser, err error) {
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
		f.a.o.Counters.count(err)
	}
	return v, stream, err
}

// fetch asks the servers for bytes.
func (f *cacheSource) fetch(ctx context.Context, want *cache.Version, offset, length int64,
	servers []storage.Server) (cache.Version, io.ReadCloser, error) {
	id := f.wanted.ID
	if want == nil && id.Immutable() && !storage.MayBeLink(id) && offset < id.Size {
		// The id tells size, time and CRC32: a download needs no request for them before it. Where
		// all storages answer it with "not found" the file is not there; other failures are
		// explained by the request for size and time.
		v, err := storage.VersionOf(id, id.Size, id.Created)
		if err != nil {
			return v, nil, err
		}
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
		want = &info.Version
	}
	stream, err := f.open(ctx, *want, offset, length, servers)
	return *want, stream, err
}

// open fetches bytes of a version.
func (f *cacheSource) open(ctx context.Context, v cache.Version, offset, length int64,
	servers []storage.Server) (io.ReadCloser, error) {
	if length = min(length, v.Size-offset); length <= 0 {
		return io.NopCloser(eof{}), nil
	}
	if v.Size > cache.SegmentSize {
		if err := f.a.checkTrunk(ctx, f.want(), storage.Info{Version: v}, servers); err != nil {
			return nil, err
		}
	}
	f.a.o.Running.Add(1)
	stream, err := f.a.o.Protocol.Open(ctx, f.want(), storage.Info{Version: v}, offset, length, servers)
	if err != nil {
		f.a.o.Running.Add(-1)
		return nil, err
	}
	f.a.o.Counters.count(nil)
	return &fetch{ReadCloser: countedStream{stream, f.a.o.Counters}, a: f.a}, nil
}

// fetch is a download for the cache.
type fetch struct {
	io.ReadCloser
	a    *Resolver
	once sync.Once
}

func (f *fetch) Read(p []byte) (n int, err error) {
	defer panics.ToError(&err, "reading from another host")
	return f.ReadCloser.Read(p)
}

func (f *fetch) Close() error {
	f.once.Do(func() { f.a.o.Running.Add(-1) })
	return f.ReadCloser.Close()
}

// eof is a reader of nothing.
type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
