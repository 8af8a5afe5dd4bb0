package storage

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

	"fastdfs-gateway/internal/backoff"
	"fastdfs-gateway/internal/checksum"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/panics"
	"fastdfs-gateway/internal/stall"
)

// Errors of a Client, by errors.Is, beside ErrNotFound.
var (
	// ErrNoSource: no storage could be asked, or none that could gave the file, and not all of them said that it does not
	// exist. It wraps what each of them did; it is context.DeadlineExceeded too where one did not answer in time.
	ErrNoSource = errors.New("no storage could be asked")
	// ErrChanged: a storage has another version of a slave, appender or link than the one that was asked for. Stat
	// tells the new one.
	ErrChanged = errors.New("storage has another version of the file")
	// ErrCRC: the content of a whole file is not what its id says.
	ErrCRC = errors.New("content does not match the CRC32 of the file id")
)

var (
	errWrong        = errors.New("wrong answer")
	errClientClosed = errors.New("storage client is closed")
	errNoServers    = errors.New("no server is left to ask")
)

// maxServers is how many known servers a Client keeps connections and health of, and how many strangers beside these.
const maxServers = 1024

// StrangerTimeout is the longest that a connection to a stranger may take to be made.
const StrangerTimeout = 3 * time.Second

// poolSize is the connections to a server where PoolOptions do not say.
const poolSize = 64

// maxProbes is how many servers are probed at a time.
const maxProbes = 16

// Server is where a storage listens.
type Server struct {
	Host string // a name or an address, without brackets
	Port int
	// Stranger: only a file id names it, and whoever makes a URL makes ids. It gets less time and
	// room than a server that a tracker, the list of storage ids or the configuration names, and
	// takes nothing from those.
	Stranger bool
}

// Addr is host:port, as net.Dial wants it.
func (s Server) Addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// ClientOptions are the settings of a Client. The zero value of each field is its documented default.
type ClientOptions struct {
	Pool        fdfs.PoolOptions // of the connections to one server
	HedgeBudget float64          // second requests for each first one, at most; default 0.05; negative = never
	Log         *slog.Logger     // default: none
}

// timing is what tests make shorter.
type timing struct {
	tick       time.Duration  // how often the janitor looks around
	unused     time.Duration  // after which a server is forgotten
	probe      time.Duration  // how long a probe may take
	backoff    backoff.Policy // before a probe of a server that has failed
	impatience time.Duration  // for the beginning of an answer while other servers are left to ask
	pause      time.Duration  // between two Reads of a stream, after which it is no fault of a storage that it gives up
	stall      time.Duration  // without a byte, after which a stream looks for another storage
}

var normalTiming = timing{
	tick: time.Second, unused: 10 * time.Minute, probe: 5 * time.Second, backoff: backoff.Policy{First: time.Second, Max: time.Minute}, impatience: 2 * time.Second,
	pause: 5 * time.Second, stall: stall.Floor,
}

// Client reads files from storage servers. It is safe for concurrent use.
type Client struct {
	o            ClientOptions
	t            timing
	log          *slog.Logger
	life         context.Context // ends with Close
	end          context.CancelFunc
	counts       counters
	budget       budget
	links        linkMemory
	strangers    Strangers
	legacyGroups checksum.Groups // whose files may have a legacy CRC32
	probing      chan struct{}   // one for each probe that runs
	running      sync.WaitGroup  // the janitor, probes and second requests

	mu      sync.Mutex // guards what follows, and refs and used of every member
	closed  bool
	members map[Server]*member
}

// member is a server that was asked lately.
type member struct {
	server Server
	pool   *fdfs.Pool // for downloads, which hold a connection for as long as their client takes
	calls  *fdfs.Pool // for short questions, so that they need not wait for these
	health health
	refs   int       // requests and streams that use it
	used   time.Time // when refs changed last
}

// maxCalls is how many short questions one server is asked at a time.
const maxCalls = 64

// callsPool are the options of the pool for short questions.
func callsPool(o fdfs.PoolOptions) fdfs.PoolOptions {
	if o.MaxOpen == 0 || o.MaxOpen > maxCalls {
		o.MaxOpen = maxCalls
	}
	return o
}

// close closes what is idle; busy connections are closed when they are given back.
func (m *member) close() {
	m.pool.Close()
	m.calls.Close()
}

// NewClient returns a Client. No connection is made yet.
func NewClient(o ClientOptions) *Client { return newClient(o, normalTiming) }

func newClient(o ClientOptions, t timing) *Client {
	if o.HedgeBudget == 0 {
		o.HedgeBudget = 0.05
	}
	c := &Client{
		o: o, t: t, log: o.Log,
		budget:  budget{rate: int64(min(max(o.HedgeBudget, 0), 1) * hedgePrice)},
		probing: make(chan struct{}, maxProbes),
		members: make(map[Server]*member),
	}
	if c.o.Pool.MaxOpen <= 0 {
		c.o.Pool.MaxOpen = poolSize
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.running.Go(c.janitor)
	return c
}

// Close ends all requests and streams (they give ErrNoSource), closes the connections and waits for the Client's goroutines.
// The caller still closes its streams.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	members := c.members
	c.members = nil
	c.mu.Unlock()
	c.end()
	for _, m := range members {
		m.close()
	}
	c.running.Wait()
}

// acquire gives the member of a server, which the caller releases.
func (c *Client) acquire(s Server) (*member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClientClosed
	}
	m := c.members[s]
	if m == nil {
		if !c.hasRoom(s.Stranger) {
			return nil, fmt.Errorf("cannot ask %s: %d other storages are being asked: %w", s.Addr(), maxServers, fdfs.ErrFull)
		}
		o := c.o.Pool
		if s.Stranger && (o.ConnectTimeout <= 0 || o.ConnectTimeout > StrangerTimeout) {
			o.ConnectTimeout = StrangerTimeout
		}
		m = &member{server: s, pool: fdfs.NewPool(s.Addr(), o), calls: fdfs.NewPool(s.Addr(), callsPool(o))}
		m.health.t = c.t
		c.members[s] = m
	}
	m.refs++
	m.used = time.Now()
	return m, nil
}

// hold is acquire for a member that the caller has already.
func (c *Client) hold(m *member) {
	c.mu.Lock()
	m.refs++
	c.mu.Unlock()
}

func (c *Client) release(m *member) {
	c.mu.Lock()
	m.refs--
	m.used = time.Now()
	c.mu.Unlock()
}

// hasRoom tells whether there is room for one more stranger, or known server, and makes it where
// there is none by forgetting the one that was not used for the longest time. It is called with mu
// held.
func (c *Client) hasRoom(stranger bool) bool {
	var oldest *member
	count := 0
	for _, m := range c.members {
		if m.server.Stranger != stranger {
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
	c.running.Go(oldest.close) // not under the lock: it says goodbye to the server
	return true
}

// enter counts a goroutine that Close will wait for; false when the Client is closed.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.running.Add(1)
	}
	return !c.closed
}

// janitor is the goroutine that looks after pools and unhealthy servers.
func (c *Client) janitor() {
	ticker := time.NewTicker(c.t.tick)
	defer ticker.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case now := <-ticker.C:
			c.sweep(now)
		}
	}
}

// sweep forgets servers that were not used for long, closes idle connections of the others, and probes those that are due.
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
		m.close()
	}
	for _, m := range rest {
		m.pool.Sweep(now)
		m.calls.Sweep(now)
		c.probe(m, now)
	}
}

// probe starts a probe of a server that is due for one.
func (c *Client) probe(m *member, now time.Time) {
	select {
	case c.probing <- struct{}{}:
	default:
		return // the next round will do
	}
	if !m.health.startProbe(now) {
		<-c.probing
		return
	}
	c.running.Go(func() { // the janitor is running, so Close is still waiting
		defer panics.Contain("probing a storage")
		defer func() { <-c.probing }()
		ctx, cancel := context.WithTimeout(c.life, c.t.probe)
		defer cancel()
		_, err := m.calls.Call(ctx, fdfs.CmdActiveTest, 0, nil, 0)
		if c.life.Err() == nil {
			c.logChange(m, m.health.probed(err, time.Now()), err)
		}
	})
}

// Order sorts servers by how well they have answered lately: healthy ones first, dead ones last, and each once. One whose connections
// are all in use is no better than a suspect one. Among equals the caller's order counts. Servers that are not known are taken for
// healthy.
func (c *Client) Order(servers []Server) []Server {
	type ranked struct {
		Server
		State
	}
	var buf [16]ranked
	list := buf[:0]
	c.mu.Lock()
	for _, s := range servers {
		if slices.ContainsFunc(list, func(r ranked) bool { return r.Server == s }) {
			continue
		}
		r := ranked{Server: s}
		if m := c.members[s]; m != nil {
			r.State = m.health.state()
			if m.refs >= c.o.Pool.MaxOpen { // one more request would have to wait for a connection
				r.State = max(r.State, Suspect)
			}
		}
		list = append(list, r)
	}
	c.mu.Unlock()
	slices.SortStableFunc(list, func(a, b ranked) int { return int(a.State) - int(b.State) })
	ordered := make([]Server, len(list))
	for i, r := range list {
		ordered[i] = r.Server
	}
	return ordered
}

// logChange writes a line when a server's state is another one than before.
func (c *Client) logChange(m *member, before State, err error) {
	switch now := m.health.state(); {
	case now == before:
	case now == Healthy:
		c.log.Info("storage is healthy again", "storage", m.server.Addr())
	default:
		c.log.Warn("storage is "+now.String(), "storage", m.server.Addr(), "before", before.String(), "error", err)
	}
}
