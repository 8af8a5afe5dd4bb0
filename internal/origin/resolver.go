// Package origin finds and fetches files that are not on this host.
//
//	r := origin.NewResolver(origin.Options{Protocol: origin.Storages{Client: c}, Sources: sources, Cache: kept})
//	err := r.Find(req, local.ErrNoGroup) // fills in req.File
//	stream, err := req.File.Open(0, size)  // its first bytes are there: no status can go wrong any more
//	req.File.Close()
//
// Find is the path of a request (find.go): candidates.go decides which hosts may be asked, in which
// order; locate.go finds the one to send the client to; file.go gives the content, which fetcher.go
// fetches for the cache, or for this request. protocol.go names the two ways to ask another host:
// http.go is one, the other is in package storage/client. sources.go holds the allow-list: no other
// host is ever asked.
package origin

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"
)

// Options configure a Resolver.
type Options struct {
	Protocol Protocol     // fetches them
	Sources  *Sources     // the hosts that may be asked; nil = none, so no file is found
	Cache    *cache.Cache // nil = each request fetches for itself
	Store    Store        // of this host; nil = it has none
	Targets  Targets      // of requests to web servers
	// Owners names the gateways of the fleet that own a file, the first in rank first; nil = there
	// is no fleet.
	Owners      func(file string) []string
	TryReplicas bool // ask the other storages of the group before 404
	Redirect    bool // send the client to the source instead of fetching

	// SyncDelay returns the time after its creation within which a file may not be replicated to
	// this host yet; nil = 0.
	SyncDelay func() time.Duration
	// Purges are those of the fleet; nil = the cache may always be used.
	Purges Purges
	// MaxSlot returns the size of the largest trunk slot in bytes. Larger ones are not asked for.
	// Nil = local.DefaultMaxSlot.
	MaxSlot func() int64

	// Running counts the requests whose file is coming from another host: as long as there are
	// some, the Protocol is in use. Several resolvers may share it; default: one of its own.
	Running *atomic.Int64
	// Counters may be shared too; default: some of its own.
	Counters *Counters

	StatTimeout time.Duration // of a request for size and time; default 30 s
	Port        int           // of this gateway, for requests without a connection
}

// Store is the store of this host.
type Store interface {
	// Path returns the path of the file; local.ErrNoGroup if its group has no store path here.
	Path(id fdfs.FileID) (string, error)
	// Deleted reports whether a file that is not there was deleted, and not lost with a disk.
	// openErr says why it is not there, by an attempt to open it after since.
	Deleted(id fdfs.FileID, openErr error, since time.Time) bool
}

// Purges restrict the use of the cache: a gateway that was disconnected first applies the purges of
// that time.
type Purges interface {
	// IsCurrent reports whether the cache may be used now.
	IsCurrent() bool
	// WaitApplied waits until then, for a bounded time, or until ctx ends.
	WaitApplied(ctx context.Context)
}

// Resolver finds files on other hosts by one set of Options. It is safe for concurrent use.
type Resolver struct {
	o     Options
	slots *slots // of requests without a cache
}

// NewResolver returns a resolver for the options.
func NewResolver(o Options) *Resolver {
	o.StatTimeout = cmp.Or(o.StatTimeout, 30*time.Second)
	o.Running, o.Counters = cmp.Or(o.Running, &atomic.Int64{}), cmp.Or(o.Counters, &Counters{})
	if o.SyncDelay == nil {
		o.SyncDelay = func() time.Duration { return 0 }
	}
	if o.MaxSlot == nil {
		o.MaxSlot = func() int64 { return local.DefaultMaxSlot }
	}
	return &Resolver{o: o, slots: newSlots()}
}

// Client is the client that a request comes from.
type Client interface {
	// Wait counts the request among those that wait for a source, until done is called. It calls
	// onDisconnect, from another goroutine, if the client disconnects before that. onDisconnect
	// must not block, and may still run when done has returned. The error is ErrTooManyWaiting.
	Wait(source string, onDisconnect func()) (done func(), err error)
	// Hint is the offset of the first byte that will be read, or cache.NoHint.
	Hint() int64
}

// Request is a client's request for a file that is not on this host. It is reused with the request
// that it is a part of.
type Request struct {
	ID               fdfs.FileID // canonical; its strings are good while the request is
	Now              time.Time
	Redirected       bool   // another server has sent the request here: it is never sent on
	Port             int    // that it came in on; 0 = none
	Token, Timestamp []byte // of the client; nil = none
	Client           Client

	File File // that Find has found

	name  []byte // scratch
	trace *trace // records the path for Explain, which ends before another host is asked; nil = none
}

// Reset forgets all but the Client. The File must be closed.
func (r *Request) Reset() { *r = Request{Client: r.Client, name: r.name[:0]} }

// usesWeb reports whether files are fetched from web servers, which are asked for targets.
func (a *Resolver) usesWeb() bool {
	s, ok := a.o.Protocol.(Storages)
	return !ok || s.Web
}

// stat asks which server has the file.
func (a *Resolver) stat(ctx context.Context, w client.FetchRequest, servers []client.Server,
	timeout time.Duration) (info client.Info, err error) {
	defer panics.ToError(&err, "asking for a file")
	a.o.Running.Add(1)
	defer a.o.Running.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return a.o.Protocol.Stat(ctx, w, servers)
}
