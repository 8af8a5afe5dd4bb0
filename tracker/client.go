// Package tracker requests groups, storages and shared settings from the trackers of a FastDFS
// cluster, and keeps their replies. It is a part of this program, not a library for others: its API
// has types of internal/fdfs.
//
//	c := tracker.New(tracker.Options{
//		// the second tracker has two addresses
//		Trackers: [][]string{{"10.0.0.1:22122"}, {"10.0.0.2:22122", "192.168.0.2:22122"}},
//	})
//	defer c.Close()
//	<-c.Loaded()
//	storages := c.Members().StoragesOf("group1") // of the last load, without a request
//	list, err := c.Storages(ctx, "group1")       // a request to any of the trackers
//
// Trackers take turns. If a tracker is down or slow, sends a malformed reply or rejects the request
// (fdfs.StatusError), the request goes to the next one: trackers disagree while some storages have
// not joined one of them. Trackers in back-off come last. If no tracker has sent a usable reply,
// the error is a StatusError if one has rejected the request, else ErrUnavailable.
//
// The client loads the members of all groups, the storage ids and the shared settings every few
// minutes. It can start while all trackers are down, and keeps the last loaded lists while they are
// down. The members are those of all trackers together, see listing.go.
package tracker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/backoff"
)

// Options of a Client. The zero value of each field means its default.
type Options struct {
	// Trackers are the one or two host:port addresses of each tracker. Without trackers every
	// request is ErrUnavailable, and the client only has Parameters and StorageIDs.
	Trackers [][]string
	// Pool bounds the connections to each address.
	Pool fdfs.PoolOptions
	// Timeout bounds the wait for the reply of one address, after which the next gets the request;
	// default 3 s.
	Timeout time.Duration
	// Refresh is the interval between loads, plus or minus a tenth; default 5 minutes.
	Refresh time.Duration
	// UseParameters is load_fdfs_parameters_from_tracker: the settings, and the storage ids if the
	// settings use them, are those of the trackers as soon as one has replied.
	UseParameters bool
	// Parameters and StorageIDs are those of the configuration.
	Parameters Parameters
	StorageIDs []fdfs.StorageID
	// Log records when a tracker goes down or comes back; default slog.Default().
	Log *slog.Logger
}

// ErrUnavailable means that no tracker has sent a usable reply, and none has rejected the request.
// An empty list is not usable.
var ErrUnavailable = errors.New("no tracker replied")

const (
	defaultTimeout  = 3 * time.Second
	defaultRefresh  = 5 * time.Minute
	minLoadInterval = 2 * time.Second // between two loads on request
	renewTimeout    = time.Second     // of a call of Renew
	maxWaiting      = 64              // waiting calls of Renew
	loadTimeout     = time.Minute     // of a complete load
)

// Client sends requests to trackers. It is safe for concurrent use.
type Client struct {
	o        Options
	trackers []*server
	next     atomic.Uint32 // counter that selects the next tracker
	retry    backoff.Policy

	members Members
	params  atomic.Pointer[Parameters]

	cancel context.CancelFunc // ends run
	probes sync.WaitGroup     // run waits for them at its end
	done   chan struct{}      // closed at the end of run
	loaded chan struct{}      // closed after the first load
	wake   chan struct{}      // holds one value if a load is requested, or a tracker came back
	lists  lists              // of the last load; only run uses it and listings
	// listings are the lists of the trackers, in the order of trackers.
	listings []listing

	mu       sync.Mutex    // guards the fields below
	loading  bool          // a load is running
	fails    int           // failed loads in a row
	loadedAt time.Time     // end of the last load
	due      time.Time     // begin of the next load
	loadEnd  chan struct{} // closed at the end of the running load, or of the next one if none is running
	waiting  int           // calls of Renew that wait for loadEnd
}

// New returns a client and begins the first load in the background, see Loaded.
func New(o Options) *Client {
	return start(o, backoff.Policy{First: time.Second, Max: 30 * time.Second})
}

func start(o Options, retry backoff.Policy) *Client {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Refresh <= 0 {
		o.Refresh = defaultRefresh
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{
		o: o, retry: retry, cancel: cancel, lists: lists{ids: o.StorageIDs}, done: make(chan struct{}),
		loaded: make(chan struct{}), wake: make(chan struct{}, 1), loadEnd: make(chan struct{}),
	}
	for _, addresses := range o.Trackers {
		if len(addresses) > 0 {
			c.trackers = append(c.trackers, newServer(addresses, o.Pool))
		}
	}
	c.listings = make([]listing, len(c.trackers))
	c.params.Store(&o.Parameters)
	c.members.set(c.lists)
	go c.run(ctx)
	return c
}

// Close stops the background work and closes the connections. Requests fail from then on.
func (c *Client) Close() {
	c.cancel()
	<-c.done
	for _, s := range c.trackers {
		s.close()
	}
}

// Members returns the members of all groups: never nil, always the same pointer.
func (c *Client) Members() *Members { return &c.members }

// Current returns the settings: those of the trackers if they are used and have been loaded, else
// those of the configuration. It sends no request.
func (c *Client) Current() Parameters { return *c.params.Load() }

// Loaded returns a channel that is closed at the end of the first load, successful or not.
func (c *Client) Loaded() <-chan struct{} { return c.loaded }

// LoadSoon requests a load before it is due, and does not wait for it. Requested loads begin at
// least 2 s after the end of the load before.
func (c *Client) LoadSoon() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Renew is LoadSoon for a caller that needs a group or a storage which Members does not have, or
// which cannot be reached: Renew waits for the end of the load, at most 1 s. It does not wait if
// the load would not begin at once (the last one ended less than 2 s ago), if the last one failed,
// or if too many calls wait already.
func (c *Client) Renew() {
	c.mu.Lock()
	if !c.loading {
		c.LoadSoon()
	}
	if c.fails > 0 || c.waiting >= maxWaiting || !c.loading && time.Since(c.loadedAt) < minLoadInterval {
		c.mu.Unlock()
		return
	}
	loadEnd := c.loadEnd
	c.waiting++
	c.mu.Unlock()
	select {
	case <-loadEnd:
	case <-time.After(renewTimeout):
	case <-c.done:
	}
	c.mu.Lock()
	c.waiting--
	c.mu.Unlock()
}
