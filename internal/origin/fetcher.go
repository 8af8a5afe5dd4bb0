package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/variant"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"
)

// fetcher fetches one file from other hosts: for the cache, or for one request without a cache. A
// fill serves all clients and outlives the request that started it, so a fetcher keeps copies of
// the fields of the request. The candidates are chosen at the first use, since most files are in
// the cache.
type fetcher struct {
	a          *Resolver
	request    client.FetchRequest
	variant    string // name of the variant that is made of the file; empty = none
	localErr   error  // the reason for which the file is not here
	redirected bool   // another server has sent the request here
	now        time.Time
	trace      *trace // nil = none

	mu         sync.Mutex // guards the fields below
	candidates *candidates
	name       string // address of the first candidate; empty: not needed yet
}

var _ cache.Source = (*fetcher)(nil)

// newFetcher makes the fetcher of a request. Without the cache the fetcher sends the token of the
// client, and content is compared with its CRC32 while it is sent: by the Protocol, or for trunk
// slots by slotStream.
func (a *Resolver) newFetcher(r *Request, localErr error, cached bool) *fetcher {
	f := &fetcher{a: a, localErr: localErr, redirected: r.Redirected, now: r.Now, trace: r.trace,
		variant: strings.Clone(r.Variant)}
	f.request = client.FetchRequest{ID: r.ID.Clone(), Port: r.Port, Unchecked: cached || r.ID.Kind == fdfs.KindTrunk}
	if !cached && a.usesWeb() {
		f.request.Target = a.o.Targets.Fetch(r.ID.AsAsked(), r.Token, r.Timestamp, r.Now)
	}
	return f
}

// choose chooses the candidates for a file that the cache does not know. Without candidates it
// returns the error for the client.
func (f *fetcher) choose() error {
	c := f.decide()
	f.candidates, f.name, f.request.BySource = &c, "", c.bySource
	if len(c.servers) == 0 && f.localErr != nil {
		return c.err
	}
	return nil
}

// decided returns the candidates for the file.
func (f *fetcher) decided() *candidates {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.candidates == nil {
		f.setCandidates(f.decide())
	}
	return f.candidates
}

// awaited returns the source that a request waits for: the first candidate, or the group if none
// was chosen.
func (f *fetcher) awaited() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.candidates
	if c == nil || len(c.servers) == 0 {
		return f.request.ID.Group
	}
	if f.name == "" {
		f.name = c.servers[0].Addr()
	}
	return f.name
}

// setCandidates sets the candidates. Content that is cached for all ids of a trunk file never comes
// from a source that only one of these ids names. mu is held.
func (f *fetcher) setCandidates(c candidates) {
	if c.bySource && !f.request.BySource {
		c = candidates{err: ErrUnreachable, why: "the storages of the group are not listed any more"}
	}
	f.candidates, f.name = &c, ""
}

// Name implements cache.Source. The limits count all load of a fetcher at the first candidate.
func (f *fetcher) Name() string {
	f.decided()
	return f.awaited()
}

// Unlisted implements cache.Source.
func (f *fetcher) Unlisted() bool {
	servers := f.decided().servers
	return len(servers) > 0 && servers[0].Unlisted
}

// RequestedAs implements cache.Source: the logic filename that the client has requested.
func (f *fetcher) RequestedAs() string { return f.request.ID.Asked }

// SourceForPeer returns the source of a file for another gateway; asked is the RequestedAs of the
// Source there. The error is cache.ErrNotHere for the groups of this host, whose storages the other
// gateway asks itself, and without candidates.
func (a *Resolver) SourceForPeer(file, asked string) (cache.Source, error) {
	file, name, isVariant := variant.CutKey(file)
	id, bySource, err := fdfs.ParseKey(file)
	if err == nil && asked != "" {
		id, err = askedAs(id, asked)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cache.ErrNotHere, err)
	}
	_, localErr := a.o.Store.Path(id)
	switch {
	case isVariant && a.o.Maker == nil, !isVariant && !errors.Is(localErr, local.ErrNoGroup),
		a.o.Redirect && localErr != nil:
		return nil, fmt.Errorf("%w: it is not fetched by this gateway", cache.ErrNotHere)
	case localErr == nil:
		if localErr = a.isHere(id); localErr != nil && (a.o.Redirect || a.o.Sources == nil) {
			return nil, fmt.Errorf("%w: %w", cache.ErrNotHere, localErr)
		}
	}
	f := a.newFetcher(&Request{ID: id, Variant: name, Now: time.Now(), Port: a.o.Port}, localErr, true)
	f.request.BySource = bySource
	if c := f.decided(); len(c.servers) == 0 && localErr != nil {
		return nil, fmt.Errorf("%w: %w", cache.ErrNotHere, c.err)
	}
	return f, nil
}

// askedAs returns the id with the logic filename asked. It fails if that names another file.
func askedAs(id fdfs.FileID, asked string) (fdfs.FileID, error) {
	other, err := fdfs.ParseLogic(id.Group, asked)
	if err != nil {
		return fdfs.FileID{}, err
	}
	if other = other.Canonical(); other.Logic != id.Logic {
		return fdfs.FileID{}, fmt.Errorf("%w: it is no id of %q", fdfs.ErrKey, id)
	}
	return other, nil
}

// youngTTL is the time for which "no such file" is cached for a slave file that replication may
// still bring: clients request many that were never uploaded. It is not cached for other files,
// which were uploaded.
const youngTTL = time.Second

// NegativeTTL implements cache.Source.
func (f *fetcher) NegativeTTL() time.Duration {
	switch id := f.request.ID; {
	case !f.a.isYoung(id, time.Now()):
		return 0
	case id.Kind == fdfs.KindSlave:
		return youngTTL
	}
	return -1
}

// servers returns the servers to ask. The error without a server does not mean that the file is
// missing: the next request for the file may be allowed to ask one.
func (f *fetcher) servers() ([]client.Server, error) {
	c := f.decided()
	if len(c.servers) == 0 {
		return nil, fmt.Errorf("no server to ask: %w", c.err)
	}
	return c.servers, nil
}

// named returns the servers with these names, which are their addresses; the zero Server for an
// unknown name.
func (f *fetcher) named(names []string) []client.Server {
	known := f.decided().servers
	list := make([]client.Server, len(names))
	for i, name := range names {
		for _, server := range known {
			if server.Addr() == name {
				list[i] = server
			}
		}
	}
	return list
}

// Exclude implements cache.Source.
func (f *fetcher) Exclude(server string) {
	if s := f.named([]string{server})[0]; s != (client.Server{}) {
		f.a.o.Protocol.Exclude(f.request.ID, s)
	}
}

// Recheck implements cache.Source.
func (f *fetcher) Recheck(ctx context.Context, v content.Version, sum checksum.Sum, senders []string) (
	again checksum.Sum, err error) {
	defer panics.ToError(&err, "comparing a file")
	if f.variant != "" {
		return again, fdfs.ErrFileCRC
	}
	servers, err := f.servers()
	if err != nil {
		return again, err
	}
	f.a.o.Running.Add(1)
	defer f.a.o.Running.Add(-1)
	return f.a.o.Protocol.Recheck(ctx, f.fetchRequest(), v, sum, f.named(senders), servers)
}

// Stat implements cache.Source.
func (f *fetcher) Stat(ctx context.Context, known content.Version) (_ content.Version, err error) {
	defer panics.ToError(&err, "asking for a file")
	if f.variant != "" {
		return f.statVariant(ctx, known)
	}
	file, err := f.stat(ctx)
	return file.Version, err
}

// stat requests size and time.
func (f *fetcher) stat(ctx context.Context) (file client.Part, err error) {
	defer panics.ToError(&err, "asking for a file")
	err = f.ask(ctx, func(servers []client.Server) (err error) {
		file, err = f.a.stat(ctx, f.fetchRequest(), servers, f.a.o.StatTimeout)
		return err
	})
	return file, err
}

// ask lets ask send a request to the servers. If none of them could be reached and the lists name
// others by now, ask is called once more with those. A failure is counted, unless the client has
// left.
func (f *fetcher) ask(ctx context.Context, ask func(servers []client.Server) error) error {
	servers, err := f.servers()
	if err != nil {
		return err
	}
	err = ask(servers)
	if f.moved(ctx, err) {
		if servers, err = f.servers(); err == nil {
			err = ask(servers)
		}
	}
	if errors.Is(err, fdfs.ErrNoFile) && f.a.isInDoubt(f.request.ID) {
		err = fmt.Errorf("%w: those that are known do not have the file", ErrNoLists)
	}
	if err != nil && !errors.Is(context.Cause(ctx), ErrClientGone) {
		f.a.o.Counters.count(err)
	}
	return err
}

// isInDoubt reports whether a storage that no list contains may have a file which the others do not
// have: its source is in no list, and the lists may not be complete.
func (a *Resolver) isInDoubt(id fdfs.FileID) bool {
	_, status := a.o.Sources.Of(id)
	return status != SourceAllowed && status != SourceSelf && a.o.Sources.areInDoubt()
}

// fetchRequest returns the request with a target for web servers. If the fetch is for all clients,
// the target gets a new token: web servers check tokens too, and a fill may start long after a
// request.
func (f *fetcher) fetchRequest() client.FetchRequest {
	c, w := f.decided(), f.request
	w.Source, w.SourceLacks = c.source, c.sourceLacks
	if f.a.usesWeb() && w.Target == "" {
		w.Target = f.a.o.Targets.Fetch(w.ID.AsAsked(), nil, nil, time.Now())
	}
	return w
}

// Fetch implements cache.Source.
func (f *fetcher) Fetch(ctx context.Context, want *content.Version, offset, length int64) (v content.Version,
	body io.ReadCloser, err error) {
	defer panics.ToError(&err, "fetching a file")
	if f.variant != "" {
		return f.fetchVariant(ctx, want, offset, length)
	}
	err = f.ask(ctx, func(servers []client.Server) (err error) {
		v, body, err = f.fetch(ctx, want, offset, length, servers)
		return err
	})
	return v, body, err
}

// fetch requests bytes from servers.
func (f *fetcher) fetch(ctx context.Context, want *content.Version, offset, length int64,
	servers []client.Server) (content.Version, io.ReadCloser, error) {
	if want != nil {
		body, err := f.openBody(ctx, client.Part{Version: *want, Offset: offset, Length: length}, servers)
		return *want, body, err
	}
	id := f.request.ID
	byID, err := client.VersionOf(id, id.Size, id.Created)
	if err == nil && byID.Immutable && !client.MayBeLink(id) && offset < id.Size {
		// The id contains size, time and CRC32: a download needs no request for them before it. If
		// all storages respond "not found" the file does not exist. After other failures, the
		// request for size and time returns the reason.
		body, err := f.openBody(ctx, client.Part{Version: byID, Offset: offset, Length: length}, servers)
		if err == nil || ctx.Err() != nil || errors.Is(err, fdfs.ErrNoFile) {
			return byID, body, err
		}
	}
	file, err := f.a.stat(ctx, f.fetchRequest(), servers, f.a.o.StatTimeout)
	if err != nil {
		return file.Version, nil, err
	}
	body, err := f.openBody(ctx, file.At(offset, length), servers)
	return file.Version, body, err
}

// fetchOnce fetches a part for one request.
func (f *fetcher) fetchOnce(ctx context.Context, part client.Part) (body io.ReadCloser, err error) {
	defer panics.ToError(&err, "fetching a file")
	err = f.ask(ctx, func(servers []client.Server) (err error) {
		body, err = f.openBody(ctx, part, servers)
		return err
	})
	return body, err
}

// openBody requests a part, which may reach beyond the end of the file, from servers.
func (f *fetcher) openBody(ctx context.Context, part client.Part, servers []client.Server) (io.ReadCloser, error) {
	if part.Length = min(part.Length, part.Size-part.Offset); part.Length <= 0 {
		return http.NoBody, nil
	}
	f.a.o.Running.Add(1)
	body, err := f.a.o.Protocol.Open(ctx, f.fetchRequest(), part, servers)
	if err != nil {
		f.a.o.Running.Add(-1)
		return nil, err
	}
	f.a.o.Counters.count(nil)
	return &fetch{ReadCloser: body, f: f}, nil
}

var _ cache.Senders = (*fetch)(nil)

// fetch is a download that counts in Options.Running until Close, and its bytes in Counters.
type fetch struct {
	io.ReadCloser
	f    *fetcher
	once sync.Once
}

func (f *fetch) Read(p []byte) (n int, err error) {
	defer panics.ToError(&err, "reading from another host")
	n, err = f.ReadCloser.Read(p)
	f.f.a.o.Counters.bytes.Add(uint64(n))
	return n, err
}

func (f *fetch) Close() error {
	f.once.Do(func() { f.f.a.o.Running.Add(-1) })
	return f.ReadCloser.Close()
}

// Senders implements cache.Senders.
func (f *fetch) Senders() []string {
	body, ok := f.ReadCloser.(interface{ Senders() []client.Server })
	if !ok {
		return []string{""}
	}
	first := f.f.decided().servers
	var names []string
	for _, server := range body.Senders() {
		if len(first) > 0 && server == first[0] {
			names = append(names, f.f.awaited())
		} else {
			names = append(names, server.Addr())
		}
	}
	return names
}
