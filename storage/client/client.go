// Package client reads files from storage servers by the FastDFS protocol, or by another Transport:
//
//	c := client.New(client.Options{})
//	defer c.Close()
//	servers := []client.Server{{Host: "10.0.0.1", Port: 23000}, {Host: "10.0.0.2", Port: 23000}}
//	file, err := c.Stat(ctx, client.FetchRequest{ID: id}, servers)
//	if errors.Is(err, fdfs.ErrNoFile) { ... }
//	stream, err := c.Open(ctx, client.FetchRequest{ID: id}, file, servers) // or file.At(offset, length)
//	if errors.Is(err, client.ErrNoSource) { ... }
//	defer stream.Close()
//	_, err = io.Copy(w, stream)
//
// A Client connects only to the servers in its calls. Healthy servers get requests first, a request
// to a slow server is also sent to a second one (hedged), and a stream whose source fails continues
// at another one: the reader gets every byte, or an error.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/backoff"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/storage/client/stall"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Errors of a Client, by errors.Is, besides fdfs.ErrNoFile, fdfs.ErrFileChanged (another version
// than the requested one; Stat returns the new one) and fdfs.ErrFileCRC.
var (
	// ErrNoSource: no storage has sent the file, and not all of them replied that it does not
	// exist. It wraps the error of each storage, and is context.DeadlineExceeded too if one did not
	// reply in time.
	ErrNoSource = i18n.Errorf("no storage could be asked")
	// ErrWrong: a reply contradicts the request: it has another length or size, or an impossible
	// time.
	ErrWrong = errors.New("wrong reply")
)

var (
	errClientClosed = errors.New("storage client is closed")
	errNoServers    = errors.New("no server is left to ask")
)

// maxServers bounds the listed servers whose connections and health a Client keeps, and,
// separately, the unlisted ones.
const maxServers = 1024

// Limits for all unlisted servers together that have not replied yet, so that made-up ids cannot
// take the connections that other files need.
const (
	maxUnlisted         = 64              // servers with running requests
	maxUnlistedRequests = 256             // requests to them
	unlistedTimeout     = 3 * time.Second // bounds the connect timeout for unlisted servers
)

// poolSize is the default of PoolOptions.MaxOpen here.
const poolSize = 64

// maxProbes bounds the concurrent probes.
const maxProbes = 16

// Server is the address of a storage.
type Server struct {
	Host string // a name or an address, without brackets
	Port int
	// Unlisted: only a file id names this server, and a client can make up ids. An unlisted server
	// has a shorter connect timeout than listed servers, which a tracker, the list of storage ids
	// or the configuration names. Until an unlisted server has replied, its requests are bounded
	// more strictly. It takes no place of listed servers.
	Unlisted bool
}

// ConnectTimeout returns the connect timeout for the server; usual is the one of listed servers.
func (s Server) ConnectTimeout(usual time.Duration) time.Duration {
	if s.Unlisted && (usual <= 0 || usual > unlistedTimeout) {
		return unlistedTimeout
	}
	return usual
}

// Addr returns host:port, as net.Dial wants it.
func (s Server) Addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// Options are the settings of a Client. The zero value of each field means its default.
type Options struct {
	Pool        fdfs.PoolOptions // for each server
	HedgeBudget float64          // hedged requests per request, at most; default 0.05; negative = none
	Log         *slog.Logger     // default: discard
	// NewTransport returns the transport for one server; default: the FastDFS protocol, by Pool.
	// With another transport only Pool.MaxOpen is used: a server with that many running requests
	// counts as suspect.
	NewTransport func(Server) Transport
}

// timing has the durations that tests shorten.
type timing struct {
	tick         time.Duration  // between two runs of the janitor
	unused       time.Duration  // after which a server is forgotten
	probe        time.Duration  // timeout of a probe
	backoff      backoff.Policy // between failure and probe
	replyTimeout time.Duration  // for a reply to begin, while other servers are left
	// pause is the time between two Reads of a stream after which the storage may close the
	// connection: that does not count as a failure.
	pause time.Duration
	// stall is the time without a byte after which a stream looks for another storage.
	stall time.Duration
	// window is the time of waiting in which the rate of a storage is measured.
	window time.Duration
}

var normalTiming = timing{
	tick: time.Second, unused: 10 * time.Minute, probe: 5 * time.Second,
	backoff: backoff.Policy{First: time.Second, Max: time.Minute}, replyTimeout: 2 * time.Second,
	pause: 5 * time.Second, stall: stall.Floor, window: stall.Window,
}

// Client reads files from storage servers. It is safe for concurrent use.
type Client struct {
	o            Options
	t            timing
	log          *slog.Logger
	ctx          context.Context // cancelled by Close
	end          context.CancelFunc
	counts       counters
	budget       budget
	links        *lru.Cache[string, uint32]    // CRC32s of the content of links, which differ from those in their ids
	excludeMu    sync.Mutex                    // serializes changes of excluded
	excluded     *lru.Cache[string, exclusion] // by file id
	legacyGroups checksum.Groups               // groups of files with legacy CRC32s
	probing      chan struct{}                 // holds one value for each running probe
	running      sync.WaitGroup                // janitor and probes

	mu      sync.Mutex // guards the fields below, and refs, used and health of every member
	closed  bool
	members map[Server]*member
}

// member is a server that was used lately.
type member struct {
	server    Server
	transport Transport
	health    health
	refs      int       // requests and streams that use it
	used      time.Time // time of the last change of refs
}

// New returns a Client. It makes no connection yet.
func New(o Options) *Client { return newClient(o, normalTiming) }

func newClient(o Options, t timing) *Client {
	if o.HedgeBudget == 0 {
		o.HedgeBudget = 0.05
	}
	c := &Client{
		o: o, t: t, log: o.Log,
		budget:  budget{rate: min(max(o.HedgeBudget, 0), 1)},
		probing: make(chan struct{}, maxProbes),
		members: make(map[Server]*member),
	}
	if c.o.Pool.MaxOpen <= 0 {
		c.o.Pool.MaxOpen = poolSize
	}
	if c.o.NewTransport == nil {
		c.o.NewTransport = func(s Server) Transport { return newTCPTransport(s, c.o.Pool) }
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.links, _ = lru.New[string, uint32](maxLinks) // fails only for sizes below 1
	c.excluded, _ = lru.New[string, exclusion](maxExcluded)
	c.ctx, c.end = context.WithCancel(context.Background())
	c.running.Go(c.janitor)
	return c
}

// Close cancels all requests and streams with ErrNoSource, closes the connections and waits for the
// Client's goroutines. The caller still closes its streams.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	members := c.members
	c.members = nil
	c.mu.Unlock()
	c.end()
	for _, m := range members {
		m.transport.Close()
	}
	c.running.Wait()
}

// acquire returns the member of a server with a reference for the caller, who releases it.
func (c *Client) acquire(s Server) (*member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClientClosed
	}
	if err := c.admit(s); err != nil {
		return nil, err
	}
	m := c.members[s]
	if m == nil {
		if !c.hasRoom(s.Unlisted) {
			return nil, fmt.Errorf("cannot ask %s: %d other storages are being asked: %w", s.Addr(), maxServers,
				fdfs.ErrFull)
		}
		m = &member{server: s, transport: c.o.NewTransport(s)}
		m.health.policy = c.t.backoff
		c.members[s] = m
	}
	m.refs++
	m.used = time.Now()
	return m, nil
}

func (c *Client) releaseMember(m *member) {
	c.mu.Lock()
	m.refs--
	m.used = time.Now()
	c.mu.Unlock()
}

// admit returns fdfs.ErrFull if too many requests to unlisted servers wait for the first reply of
// their server, and this would be one more. c.mu is held.
func (c *Client) admit(s Server) error {
	m := c.members[s]
	if !s.Unlisted || m != nil && m.health.hasReplied {
		return nil
	}
	servers, requests := 0, 0
	for _, other := range c.members {
		if other.server.Unlisted && !other.health.hasReplied && other.refs > 0 {
			servers, requests = servers+1, requests+other.refs
		}
	}
	if requests < maxUnlistedRequests && (servers < maxUnlisted || m != nil && m.refs > 0) {
		return nil
	}
	return fmt.Errorf("cannot ask %s: %d requests to %d addresses from file ids wait for a first reply: %w", s.Addr(),
		requests, servers, fdfs.ErrFull)
}

// hasRoom reports whether there is room for one more unlisted or listed server. If necessary it
// removes the one that was unused for the longest time. c.mu is held.
func (c *Client) hasRoom(unlisted bool) bool {
	var oldest *member
	count := 0
	for _, m := range c.members {
		if m.server.Unlisted != unlisted {
			continue
		}
		if count++; m.refs == 0 && (oldest == nil || m.used.Before(oldest.used)) {
			oldest = m
		}
	}
	if count < maxServers || oldest == nil {
		return count < maxServers
	}
	delete(c.members, oldest.server)
	c.running.Go(oldest.transport.Close) // without the lock: it may send to the server
	return true
}

// janitor maintains the pools and probes unhealthy servers until Close.
func (c *Client) janitor() {
	ticker := time.NewTicker(c.t.tick)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-ticker.C:
			c.sweep(now)
		}
	}
}

// sweep removes servers that were unused for long, closes idle connections of the others, and
// probes the servers that are due.
func (c *Client) sweep(now time.Time) {
	var old, rest []*member
	c.mu.Lock()
	for s, m := range c.members {
		if m.refs == 0 && now.Sub(m.used) > c.t.unused {
			delete(c.members, s)
			old = append(old, m)
		} else {
			rest = append(rest, m)
		}
	}
	c.mu.Unlock()
	for _, m := range old {
		m.transport.Close()
	}
	for _, m := range rest {
		m.transport.Sweep(now)
		c.probe(m, now)
	}
}

// probe starts a probe of a server if one is due.
func (c *Client) probe(m *member, now time.Time) {
	select {
	case c.probing <- struct{}{}:
	default:
		return // too many probes are running: try again in the next round
	}
	c.mu.Lock()
	due := m.health.backoff.Probe(now)
	c.mu.Unlock()
	if !due {
		<-c.probing
		return
	}
	c.running.Go(func() { // not after Close has waited: the janitor, which runs this, is counted too
		defer panics.Contain("probing a storage")
		defer func() { <-c.probing }()
		ctx, cancel := context.WithTimeout(c.ctx, c.t.probe)
		defer cancel()
		err := m.transport.Probe(ctx)
		if c.ctx.Err() == nil {
			c.update(m, err, func(h *health) { h.probed(err, time.Now()) })
		}
	})
}

// AreDown reports whether the newest result of each server is a failure. A server without a member
// has not failed.
func (c *Client) AreDown(servers []Server) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(servers, func(s Server) bool {
		m := c.members[s]
		return m == nil || m.health.errors == 0
	})
}

// Order sorts servers by health: healthy ones first, dead ones last, each once, and otherwise in
// the caller's order. A server whose connections are all in use counts as suspect, a server without
// a member as healthy.
func (c *Client) Order(servers []Server) []Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	var byState [Dead + 1][]Server
	for i, s := range servers {
		if slices.Contains(servers[:i], s) {
			continue
		}
		state := Healthy
		if m := c.members[s]; m != nil {
			state = m.health.state()
			if m.refs >= c.o.Pool.MaxOpen { // one more request would wait for a connection
				state = max(state, Suspect)
			}
		}
		byState[state] = append(byState[state], s)
	}
	return slices.Concat(byState[:]...)
}
