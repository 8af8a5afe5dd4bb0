// Package origin finds and fetches files that are not on this host.
//
//	r := origin.NewResolver(origin.Options{Protocol: origin.Storages{Client: c}, Sources: sources, Cache: kept})
//	redirect, err := r.Find(req, local.ErrNoGroup) // fills in req.File if redirect is empty
//	from, err := req.File.Open(0, size)            // the first bytes have come: the status is certain
//	chunk, err := req.File.At(0, size)             // and so on, until all bytes were sent
//	req.File.Close()
//
// Find is the path of a request (find.go): candidates.go chooses the hosts that may be asked, in
// order; locate.go finds the host that the client is redirected to; file.go returns the content,
// which fetcher.go fetches for the cache, or for this request. protocol.go is the interface to the
// two protocols: http.go is one, the other is in package storage/client. sources.go has the
// allow-list: no other host is ever asked.
package origin

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/variant"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"
)

// Options configure a Resolver.
type Options struct {
	Protocol Protocol       // fetches files from other hosts
	Sources  *Sources       // hosts that may be asked; nil = none, so no file is found
	Cache    *cache.Cache   // nil = each request fetches separately
	Store    Store          // of this host; nil = none
	Files    Files          // of this host, for variants
	Maker    *variant.Maker // makes variants of files; nil = there are none
	Targets  Targets        // of requests to web servers
	// Owners returns the gateways of the fleet that own a file, the first in rank first; nil = no
	// fleet.
	Owners      func(file string) []string
	TryReplicas bool // the other storages of the group are asked before 404
	Redirect    bool // the client is redirected to the source, and nothing is fetched

	// SyncDelay returns the time after the creation of a file in which the file may not be
	// replicated to this host yet; nil = 0.
	SyncDelay func() time.Duration
	// MaxSlot returns the size of the largest trunk slot in bytes. Larger slots are not requested.
	// nil = local.DefaultMaxSlot.
	MaxSlot func() int64

	// Running counts the uses of the Protocol: requests, downloads, and files that may still be
	// fetched. Several resolvers may share it; default: a new one.
	Running *atomic.Int64
	// Counters may be shared too; default: new ones.
	Counters *Counters

	StatTimeout time.Duration // of a request for size and time; default 30 s
	Port        int           // of this gateway, for requests without a connection
}

// Store is the store of this host.
type Store interface {
	// Path returns the path of the file; local.ErrNoGroup if its group has no store path here.
	Path(id fdfs.FileID) (string, error)
	// Deleted reports whether a file that is not there was deleted, and not lost with a disk.
	// openErr is the error of an attempt to open the file, made after since.
	Deleted(id fdfs.FileID, openErr error, since time.Time) bool
}

// Resolver finds files on other hosts with one set of Options. It is safe for concurrent use.
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

// Request is the request of a client for a file that is not on this host. It is reused together
// with the request that contains it.
type Request struct {
	ID               fdfs.FileID     // canonical; its strings are valid during the request
	Variant          string          // name of the variant of the file, see variant.Name; empty = the file
	Here             content.Version // of the file, for a variant of a file of this host; zero = it is not here
	Now              time.Time
	Redirected       bool   // another server has sent the request here, with redirect=1: it is never sent on
	Port             int    // on which the request came in; 0 = none
	Token, Timestamp []byte // of the client; nil = none
	Client           Client

	File File // the result of Find

	name  []byte // scratch
	trace *trace // records the path for Explain, which ends before another host is asked; nil = none
}

// Reset clears all fields but the Client. The File must be closed.
func (r *Request) Reset() { *r = Request{Client: r.Client, name: r.name[:0]} }

// usesWeb reports whether files are fetched from web servers, whose requests contain a target.
func (a *Resolver) usesWeb() bool {
	s, ok := a.o.Protocol.(Storages)
	return !ok || s.Web
}

// stat requests size and time of the file from the servers.
func (a *Resolver) stat(ctx context.Context, w client.FetchRequest, servers []client.Server,
	timeout time.Duration) (file client.Part, err error) {
	defer panics.ToError(&err, "asking for a file")
	a.o.Running.Add(1)
	defer a.o.Running.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return a.o.Protocol.Stat(ctx, w, servers)
}
