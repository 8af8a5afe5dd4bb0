// Package tracker asks the trackers of a FastDFS cluster: which storages have a file, which belong to a group, and what
// settings they share.
//
//	c := tracker.New(tracker.Options{
//		Trackers: [][]string{{"10.0.0.1:22122"}, {"10.0.0.2:22122", "192.168.0.2:22122"}}, // the second has two addresses
//	})
//	defer c.Close()
//	servers, err := c.FetchAll(ctx, id)             // a query, answered by any of the trackers
//	ok := c.Members().Allowed(servers[0].Addr())    // from what was loaded before, without a query
//
// Trackers are equal. A query goes to one that answered last time, and on to the next when that one is down, slow or answers
// nonsense; those known to be down come last. What a tracker refuses (fdfs.ErrNotFound, fdfs.ErrInvalid, fdfs.ErrNotSupported)
// is the answer: the others would say the same. ErrUnavailable is returned when none has answered.
//
// The client keeps the members of all groups, the storage ids and the shared settings, and loads them again every few minutes.
// It starts, and goes on with what it knew, while all trackers are down.
package tracker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/backoff"
	"fastdfs-gateway/internal/fdfs"
)

// Options of a Client. The zero value of each field is its documented default.
type Options struct {
	// Trackers are the one or two host:port addresses of each tracker. With none at all every query is ErrUnavailable, and
	// what is known is Parameters and StorageIDs.
	Trackers [][]string
	// Pool bounds the connections to each address.
	Pool fdfs.PoolOptions
	// Timeout is how long one address may take for an answer before the next is asked; default 3 s. Where the
	// context ends sooner, its time is shared out among those that are left to ask.
	Timeout time.Duration
	// Refresh is how often lists and settings are loaded, give or take a tenth; default 5 minutes.
	Refresh time.Duration
	// UseParameters is load_fdfs_parameters_from_tracker: settings, and storage ids where the settings ask for them, are
	// those of the trackers as soon as one has answered.
	UseParameters bool
	// Parameters and StorageIDs are those of the configuration.
	Parameters Parameters
	StorageIDs []fdfs.StorageID
	// Log gets a line when a tracker goes down or comes back; default slog.Default().
	Log *slog.Logger
}

// ErrUnavailable is returned when no tracker has answered.
var ErrUnavailable = errors.New("no tracker answered")

const (
	defaultTimeout = 3 * time.Second
	defaultRefresh = 5 * time.Minute
	housekeeping   = 15 * time.Second // between looks at idle connections
	soonest        = 2 * time.Second  // between two loads, whoever asks for them
	renewLimit     = time.Second      // that Renew waits
	maxWaiting     = 64               // calls of Renew that wait
	loadTimeout    = time.Minute      // of one load of everything
)

// Client asks trackers. It is safe for concurrent use.
type Client struct {
	o        Options
	trackers []*server
	turn     atomic.Uint32 // the tracker whose turn it is
	retry    backoff.Policy

	members Members
	params  atomic.Pointer[Parameters]

	cancel context.CancelFunc // ends the goroutine of run
	done   chan struct{}      // closed when it has ended
	loaded chan struct{}      // closed after the first load
	wanted chan struct{}      // holds one value when a load is asked for
	health chan struct{}      // holds one value when a tracker has gone down or come back

	mu       sync.Mutex    // guards what follows
	loading  bool          // a load is under way
	failing  bool          // the last load has failed
	loadedAt time.Time     // the end of the last load
	ended    chan struct{} // closed at the end of the load that is under way, or else of the next one
	waiting  int           // calls of Renew that wait for it
}

// New returns a client and begins to load lists and settings in the background. It does not wait for them: see Loaded.
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
		o: o, retry: retry, cancel: cancel,
		done: make(chan struct{}), loaded: make(chan struct{}), wanted: make(chan struct{}, 1), health: make(chan struct{}, 1),
		ended: make(chan struct{}),
	}
	for _, addresses := range o.Trackers {
		if len(addresses) > 0 {
			c.trackers = append(c.trackers, newServer(addresses, o.Pool))
		}
	}
	c.params.Store(&o.Parameters)
	c.members.set(lists{ids: o.StorageIDs})
	go c.run(ctx)
	return c
}

// Close stops the background work, waits for it, and closes the connections. Queries fail from then on.
func (c *Client) Close() {
	c.cancel()
	<-c.done
	for _, s := range c.trackers {
		s.close()
	}
}

// Members is what is known of the groups: never nil, and always the same.
func (c *Client) Members() *Members { return &c.members }

// Current is the settings in force: those of the trackers if they are used and one has answered, else those of the
// configuration. It asks nobody.
func (c *Client) Current() Parameters { return *c.params.Load() }

// Loaded is closed when the first attempt to load lists and settings has ended, well or not.
func (c *Client) Loaded() <-chan struct{} { return c.loaded }

// LoadSoon asks for lists and settings to be loaded before they are due. It does not wait. Loads
// that are asked for begin at least 2 s after the end of the one before, however often they are
// asked for.
func (c *Client) LoadSoon() {
	signal(c.wanted)
}

// Renew is LoadSoon for a caller that has met a group or a storage that Members does not know, or
// that cannot be reached: it returns when lists and settings are loaded. It waits for 1 s at most,
// and not at all where that would bring nothing (the last load has ended less than 2 s ago, or has
// failed) or where too many calls wait already.
func (c *Client) Renew() {
	ended, ok := c.startWaiting()
	if !ok {
		return
	}
	limit := time.NewTimer(renewLimit)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
	case <-c.done:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
}

// startWaiting asks for a load unless one is under way. ended is closed when it has ended; ok is
// false where it is not to be waited for.
func (c *Client) startWaiting() (ended <-chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.trackers) == 0 {
		return nil, false
	}
	if !c.loading {
		signal(c.wanted)
	}
	if c.failing || c.waiting >= maxWaiting || !c.loading && time.Since(c.loadedAt) < soonest {
		return nil, false
	}
	c.waiting++
	return c.ended, true
}

// loadBegins notes that a load is under way.
func (c *Client) loadBegins() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loading = true
}

// loadEnds notes how a load has ended, and wakes the calls that wait for it.
func (c *Client) loadEnds(failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loading, c.failing, c.loadedAt = false, failed, time.Now()
	close(c.ended)
	c.ended = make(chan struct{})
}

// signal leaves a value in a channel that has room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
