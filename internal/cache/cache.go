// Package cache keeps what is known about files on other hosts, and their content, so that a file that many clients want at once is
// fetched once: by one request of all gateways, while all others read it as it arrives.
//
//	c, err := cache.New(cache.Options{Memory: 256 << 20, DiskPath: "/var/cache/gateway"})
//	entry, err := c.Lookup(ctx, "group1/M00/00/0C/name.ext", source, cache.Ask{Hint: 0}) // entry.Version.Size, ...
//	stream := c.Open(ctx, entry, source, 0, entry.Version.Size)
//	stretch, err := stream.Next(1 << 20) // bytes in memory, or a place in a file on disk; io.EOF behind the last one
//	stream.Close()
//
// Facts about a file (Meta) are fresh for a time, then served stale while one request of all gateways asks again. Content is cut into
// segments of 4 MiB, see package tier; ranges fetch only the segments that they touch. Whatever a process does for a file or a
// segment it does once at a time, in a flight that all its requests share, and only the flight asks the Fleet who of the gateways
// leads. The leader fetches from the Source; the others read from the leader as it fills.
//
// A stream never ends early without an error. The package knows neither Redis nor HTTP.
package cache

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/checksum"
)

// Names of package tier that are part of the interface of this one.
type (
	// Version tells one content of a file from another.
	Version = tier.Version
	// SegmentKey names a segment of a file.
	SegmentKey = tier.Key
	// Stretch is a piece of a segment, in memory or in a file.
	Stretch = tier.Stretch
	// Match says which files a purge is about.
	Match = tier.Match
)

// SegmentSize is what is fetched and stored at a time, in bytes.
const SegmentSize = tier.SegmentSize

// Errors of the cache.
var (
	// ErrNotFound: there is no such file. A Source gives it too.
	ErrNotFound = errors.New("no such file")
	// ErrChanged: the file is not of the version any more that was looked up. Look it up again. A Source may give it too.
	ErrChanged = errors.New("file has changed")
	// ErrCorrupt: the content of the file is not the one that its CRC32 says. A Source may give it too.
	ErrCorrupt = errors.New("content does not match its CRC32")
	// ErrNotHere: this gateway cannot give another one what it asks for.
	ErrNotHere = errors.New("segment is not here")
	// ErrBusy: too much is being fetched at a time, and it does not become less.
	ErrBusy = errors.New("too much is being fetched")
	// ErrClosed: the Cache was closed.
	ErrClosed = errors.New("cache is closed")
)

// Options say how much is kept and for how long. For times, a negative value means none.
type Options struct {
	Memory   int64  // bytes; one eighth of it, or minRecords, for what is known about files, the rest for content; default 256 MiB
	DiskPath string // folder for content; empty = none on disk
	DiskMax  int64  // bytes; default 10 GiB
	// DiskReady is closed when what an earlier process has left on disk may be used: when purges that came meanwhile have been
	// obeyed. Nil: at once.
	DiskReady <-chan struct{}

	TTL                  time.Duration // how long facts are fresh, less up to a tenth by chance; default 10 min
	MutableTTL           time.Duration // the same for files that can change, TTL at most; expired, they are asked for first; default 1 s
	NegativeTTL          time.Duration // the same for files that are not there; default 5 s
	StaleWhileRevalidate time.Duration // how long after that they are served at once while one request asks again; default 1 h
	StaleIfError         time.Duration // the same while asking again fails; default 24 h

	Fleet Fleet         // the other gateways; default Alone
	Wait  time.Duration // how long another gateway may take that cannot be read from; then this one fetches too; default 30 s
	// CheckFirst tells for which files the CRC32 of a segment's content is compared before its
	// first byte is given out; these files are no links. A file of several segments is the Source's
	// to check. Default: for none.
	CheckFirst  func(file string) bool
	SourceLimit int // fetches from one source at a time while the fleet is down; default 32

	Logger *slog.Logger // default: none
}

func (o *Options) setDefaults() {
	orDefault(&o.Memory, 256<<20)
	orDefault(&o.TTL, 10*time.Minute)
	orDefault(&o.MutableTTL, time.Second)
	o.MutableTTL = min(o.MutableTTL, o.TTL)
	orDefault(&o.NegativeTTL, 5*time.Second)
	orDefault(&o.StaleWhileRevalidate, time.Hour)
	orDefault(&o.StaleIfError, 24*time.Hour)
	orDefault(&o.Wait, 30*time.Second)
	orDefault(&o.SourceLimit, 32)
	if o.CheckFirst == nil {
		o.CheckFirst = func(string) bool { return false }
	}
	if o.Fleet == nil {
		o.Fleet = Alone{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// orDefault sets what is zero, and makes what is negative zero.
func orDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
	*v = max(*v, 0)
}

// Cache is the cache of one process. It is safe for concurrent use.
type Cache struct {
	o       Options
	records *records
	memory  *tier.Memory
	disk    *tier.Disk          // nil when there is none
	tiers   tier.Tier           // memory, or memory above disk
	filling *semaphore.Weighted // bytes of what is being fetched

	// overdraft is for what is fetched beyond that, because who has what is in filling takes too long.
	overdraft *semaphore.Weighted

	limits limits
	n      counters

	legacyGroups checksum.Groups // whose files may have a legacy CRC32

	life  context.Context // of the flights; ends with Close
	end   context.CancelFunc
	tasks sync.WaitGroup // the flights

	mu        sync.Mutex // guards what follows
	closed    bool
	questions map[string]*question // by file
	flights   map[SegmentKey]*flight
	orphans   orphans
}

// The least that is set aside, in bytes, however little memory there is: for what is known about some 10,000 files, without which each
// request would ask a storage, and for large files of slow storages, which are not to keep each other waiting.
const (
	minRecords   = 8 << 20
	minOverdraft = 128 << 20
)

// New returns a cache, which the caller closes.
func New(o Options) (*Cache, error) {
	o.setDefaults()
	c := &Cache{
		o: o, records: newRecords(&o, max(o.Memory/8, minRecords)), memory: tier.NewMemory(o.Memory - o.Memory/8),
		filling: semaphore.NewWeighted(max(o.Memory/2, SegmentSize)), overdraft: semaphore.NewWeighted(max(o.Memory, minOverdraft)),
		limits:    limits{most: o.SourceLimit},
		questions: make(map[string]*question), flights: make(map[SegmentKey]*flight), orphans: make(orphans),
	}
	if err := c.memory.NoSendfile(); err != nil {
		o.Logger.Warn("what the cache has in memory is copied for each answer", "err", err)
	}
	c.tiers = c.memory
	if o.DiskPath != "" {
		var err error
		if c.disk, err = tier.OpenDisk(tier.DiskOptions{Path: o.DiskPath, Max: o.DiskMax, Queue: max(o.Memory/8, 32<<20), Logger: o.Logger, Ready: o.DiskReady}); err != nil {
			return nil, err
		}
		c.tiers = tier.NewStack(c.memory, c.disk)
	}
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

// CheckDisk tells whether New would refuse a folder for content since it belongs to something else.
// It changes nothing.
func CheckDisk(path string) error { return tier.CheckFolder(path) }

// Close ends all flights and waits for them. Streams end in errors.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.tasks.Wait()
	if c.disk != nil {
		return c.disk.Close()
	}
	return nil
}

// NoHint is the Hint of a request that cannot tell which bytes it needs before it knows the size, or needs none.
const NoHint = -1

// Ask says more about a request.
type Ask struct {
	// Hint is the offset of the first byte that will be read. When nothing is known about the file its segment is fetched at once,
	// without asking for size and time first.
	Hint int64
	// Young: the file is so new that storages which do not have it may get it every moment. That it is not there is then neither
	// remembered nor believed.
	Young bool
	// MaxAge is how old the knowledge that the file is there may be. Older knowledge is confirmed
	// before it is used, unless that fails. 0: as old as Options allow.
	MaxAge time.Duration
}

// State tells how up to date an Entry is.
type State int

// The states.
const (
	Fresh State = iota // known, and not expired
	Stale              // known and expired: another request asks again, or has failed to
	Asked              // learned by this request, or by one that it waited for
)

// Entry is what is known of a file that is there.
type Entry struct {
	File    string
	Version Version
	State   State
	Age     time.Duration // since a storage has said so

	by  *flight // that is bringing content, for a request that has waited for it; nil = none
	rec *record // where a memo is kept; nil = nowhere
}

// Lookup tells what is known about a file, and finds it out when nothing is. The file's name must be the canonical one. src is asked
// when somebody has to be; flights go on with it when the request has ended, so it must not be of use to that request alone. ctx
// is that of the request: its end ends the waiting, nothing else.
//
// The error is ErrNotFound, one of the Source's, or that of ctx. Errors other than ErrNotFound are not remembered.
func (c *Cache) Lookup(ctx context.Context, file string, src Source, ask Ask) (Entry, error) {
	now := time.Now()
	m, standing := c.records.look(file, now, ask.MaxAge)
	switch standing {
	case fresh:
		return entryOf(file, m, Fresh, now), nil
	case early:
		c.question(file, src, ask, false)
		return entryOf(file, m, Fresh, now), nil
	case stale:
		c.question(file, src, ask, false)
		c.n.stale.Add(1)
		return entryOf(file, m, Stale, now), nil
	case staleUnasked:
		c.n.stale.Add(1)
		return entryOf(file, m, Stale, now), nil
	case gone:
		if !ask.Young {
			return Entry{}, ErrNotFound
		}
	}
	q := c.question(file, src, ask, true)
	defer c.leave(ctx, q)
	asked, err := q.wait(ctx)
	switch {
	case err == nil && asked.Gone:
		return Entry{}, ErrNotFound
	case err == nil:
		e := entryOf(file, asked, Asked, now)
		e.by = q.by
		return e, nil
	case standing == onlyIfError && !errors.Is(err, ErrNotFound) && !errors.Is(ctx.Err(), context.Canceled):
		c.n.stale.Add(1)
		return entryOf(file, m, Stale, now), nil
	}
	return Entry{}, err
}

func entryOf(file string, m Meta, s State, now time.Time) Entry {
	return Entry{File: file, Version: m.Version, State: s, Age: max(0, now.Sub(m.Checked))}
}

// start runs a flight's goroutine, which running counts. It is called with mu held.
func (c *Cache) start(running *atomic.Int64, f func()) bool {
	if c.closed {
		return false
	}
	running.Add(1) // here: who sees none knows that none is about to begin
	c.tasks.Go(func() {
		defer running.Add(-1)
		f()
	})
	return true
}

// Purge forgets the files that are meant: what is known about them, that they are not there, and their content. Flights that are
// about them go on for those who wait already, but what they bring is neither stored nor published. It returns the number of
// entries that were dropped.
func (c *Cache) Purge(m Match) int {
	c.mu.Lock()
	for file, q := range c.questions {
		if m.Matches(file) {
			q.doom()
			delete(c.questions, file)
		}
	}
	c.mu.Unlock()
	c.doomFlights(m, nil)
	return c.records.drop(m) + c.tiers.Drop(m)
}

// doomFlights lets the flights for the files that are meant go on for those who wait already, and nobody else. v is the version that they
// are for; nil for any.
func (c *Cache) doomFlights(m Match, v *Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, f := range c.flights {
		if m.Matches(key.File) && (v == nil || f.isFor(*v)) {
			f.doom()
			delete(c.flights, key)
		}
	}
}

// canonical is a copy of a file's name that may be kept.
func canonical(file string) string { return strings.Clone(file) }

// groupOf is the group of a file.
func groupOf(file string) string {
	group, _, _ := strings.Cut(file, "/")
	return group
}
