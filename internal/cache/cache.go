// Package cache stores metadata and content of files on other hosts. A file that many clients
// request at once is fetched once, by one gateway of the fleet; all others read it while it
// arrives.
//
//	c := cache.New(cache.Options{Memory: 256 << 20})
//	entry, err := c.Get(ctx, "group1/M00/00/0C/name.ext", source, cache.GetOptions{}) // entry.Version.Size, ...
//	stream := c.Open(ctx, entry, source, 0, entry.Version.Size)
//	chunk, err := stream.Next(1 << 20) // bytes in memory, or a part of an open file; io.EOF after the last one
//	stream.Close()
//
// Four types know something of a file. A Version tells one content of it from another. Meta is the
// reply of a storage: a Version, or that there is no such file, and the time. A metaRecord keeps
// that in this process. An Entry is a record as one request has found it.
//
// Metadata is fresh for a time. The metadata of a file that never changes is then served
// stale while one request of the fleet revalidates it. Content is cut into segments of 4 MiB, see
// package tier; ranges fetch only the segments that they touch. All requests of the process share
// one fill for the metadata of a file, and one for each segment. load.go is the path of a fill: the
// fill asks the gateway that owns the entry, and fetches from the Source if this gateway owns the
// entry or no owner responds.
//
// A stream never ends early without an error. The package knows neither Redis nor HTTP.
package cache

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
)

// Names of packages beneath that are part of the interface of this one.
type (
	// Version tells one content of a file from another.
	Version = content.Version
	// SegmentKey names a segment of a file.
	SegmentKey = tier.Key
	// Match selects the files of a purge.
	Match = tier.Match
)

// SegmentSize is the unit of fetching and storing, in bytes.
const SegmentSize = tier.SegmentSize

// Errors of the cache.
var (
	// ErrNotFound: there is no such file. A Source returns it too.
	ErrNotFound = fdfs.ErrNoFile
	// ErrChanged: the file has another version than the one that was looked up. A Source returns it
	// too.
	ErrChanged = fdfs.ErrFileChanged
	// ErrCorrupt: the content of the file has another CRC32 than the file. A Source returns it too.
	ErrCorrupt = fdfs.ErrFileCRC
	// ErrNotHere: a gateway neither has an entry nor fetches it for another gateway.
	ErrNotHere = errors.New("this gateway does not have the entry")
	// ErrUnreachable: another gateway has not responded.
	ErrUnreachable = errors.New("peer cannot be reached")
	// ErrNotStored: no tier has the bytes.
	ErrNotStored = errors.New("the bytes are not in the cache")
	// ErrMiss: Get needs a Source for this file.
	ErrMiss = errors.New("the source has to be asked")
	// ErrBusy: no place for another fetch has become free in time.
	ErrBusy = errors.New("too much is being fetched")
	// ErrClosed: the Cache was closed.
	ErrClosed = errors.New("cache is closed")
)

// Options are the sizes and times of a Cache, and the access to the fleet. A negative time means
// none.
type Options struct {
	Memory  int64 // bytes; one eighth of it, or minMetas, for metadata, the rest for content; default 256 MiB
	DiskMax int64 // bytes on disk, after OpenDisk; default 10 GiB, but for Adjust 0
	// DiskReady is closed when content that an earlier process stored may be used: after the purges
	// that came meanwhile were applied. Nil: it may be used at once.
	DiskReady <-chan struct{}

	TTL                  time.Duration // for which metadata is fresh, less up to a tenth by chance; default 10 min
	MutableTTL           time.Duration // the same for files that can change, TTL at most; default 1 s
	NegativeTTL          time.Duration // the same for missing files; default 5 s
	StaleWhileRevalidate time.Duration // after TTL: served during revalidation, if the file cannot change; default 1 h
	StaleIfError         time.Duration // after TTL: served while the source fails; default 24 h

	Fleet  Fleet         // access to the other gateways; nil: there are none
	Copies int           // gateways that keep a segment on disk, the first in rank; 0 = all
	Wait   time.Duration // limit of a wait for a held lease, a slot of a source, or memory; default 30 s
	// Source returns the Source of a file that another gateway requests, which knows it as asked:
	// PeerRequest.RequestedAs. The error is ErrNotHere if this gateway does not fetch the file.
	// Default: ErrNotHere for all files.
	Source func(file, asked string) (Source, error)
	// VerifyFirst reports whether the whole content of a file is compared with its CRC32 before its
	// first byte is published, and returns the size in bytes that the name of such a file claims.
	// Content with another CRC32 is never taken for that of a link. Default: for none.
	VerifyFirst func(file string) (size int64, ok bool)
	SourceLimit int // fetches without a lease from one source at a time; default 32

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
	if o.VerifyFirst == nil {
		o.VerifyFirst = func(string) (int64, bool) { return 0, false }
	}
	if o.Source == nil {
		o.Source = func(string, string) (Source, error) { return nil, ErrNotHere }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// orDefault replaces zero by the default, and a negative value by zero.
func orDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
	*v = max(*v, 0)
}

// Cache is the cache of one process. It is safe for concurrent use.
type Cache struct {
	o         Options
	metas     *metaCache
	began     time.Time
	memory    *tier.Memory
	disk      *tier.Disk // nil: none
	corrupted corruptions
	onPurge   func() // for tests: called before the tiers are purged
	n         counters

	leaderRoom, waiterRoom *room                                   // for segments that are being fetched, see reserve
	sourceSlots            *lru.Cache[string, *semaphore.Weighted] // by Source.Name, see awaitSlot

	legacyGroups checksum.Groups // groups whose files may have a legacy CRC32

	life  context.Context // of the fills; Close ends it with ErrClosed
	end   context.CancelCauseFunc
	tasks sync.WaitGroup // goroutines of fills
	next  chan *fill     // hands a fill to a waiting one of them

	mu sync.Mutex // guards the fields below, and the end of life
	// fills are the running ones, by the key of their entry. A fill that fetches metadata is also
	// listed by metaKey, until the metadata is set.
	fills     map[SegmentKey]*fill
	lingering int                // fills in this state
	keptFills []*fill            // fills in the state kept, the oldest first
	uncached  map[SegmentKey]int // number of streams that fetch chunks of a segment, see uncached
}

// Minimums in bytes, whatever Options.Memory is. minMetas has the metadata of some 10,000 files:
// without it each request would ask a storage. minRoom lets large files of slow storages be fetched
// without a wait for each other.
const (
	minMetas = 8 << 20
	minRoom  = 128 << 20
)

// maxKnown bounds the lists of sources and of corrupted files.
const maxKnown = 1024

// New returns a cache, which the caller closes.
func New(o Options) *Cache {
	o.setDefaults()
	size := max(o.Memory, minRoom)
	c := &Cache{
		o: o, metas: newMetaCache(&o, metaBudget(&o)), began: time.Now(), memory: tier.NewMemory(contentBudget(&o)),
		leaderRoom: newRoom(size), waiterRoom: newRoom(size),
		fills: make(map[SegmentKey]*fill), uncached: make(map[SegmentKey]int), next: make(chan *fill),
	}
	if contentBudget(&o) >= SegmentSize {
		if err := c.memory.UseSendfile(); err != nil {
			o.Logger.Warn("what the cache has in memory is copied for each response", "err", err)
		}
	}
	c.sourceSlots, _ = lru.New[string, *semaphore.Weighted](maxKnown) // fails only for sizes below 1
	c.corrupted.files, _ = lru.New[string, corruption](maxKnown)
	c.life, c.end = context.WithCancelCause(context.Background())
	return c
}

// Adjust sets Memory, DiskMax, Copies, Wait and the times of a running Cache, and evicts entries
// beyond the new sizes. The other Options stay. Stored metadata keeps its expiry, and the room for
// fetches (room.go) keeps the size that New has set.
func (c *Cache) Adjust(o Options) {
	o.setDefaults()
	c.metas.adjust(&o, metaBudget(&o))
	c.memory.SetBudget(contentBudget(&o))
	if c.disk != nil {
		c.disk.SetMax(o.DiskMax)
	}
}

// maxWait returns Wait of Options, as Adjust has set it.
func (c *Cache) maxWait() time.Duration { return c.metas.o.Load().Wait }

// Metadata takes an eighth of the memory, content the rest.
func metaBudget(o *Options) int64    { return max(o.Memory/8, minMetas) }
func contentBudget(o *Options) int64 { return o.Memory - o.Memory/8 }

// OpenDisk opens the tier on disk by DiskOptions.Path, Check and Successor. It must be called
// before the cache is used. The errors are those of tier.OpenDisk.
func (c *Cache) OpenDisk(o tier.DiskOptions) error {
	o.Max, o.Queue, o.Logger, o.Ready = c.o.DiskMax, max(c.o.Memory/8, 32<<20), c.o.Logger, c.o.DiskReady
	disk, err := tier.OpenDisk(o)
	if err == nil {
		c.disk = disk
	}
	return err
}

// Disk returns the tier on disk; nil = OpenDisk was not called.
func (c *Cache) Disk() *tier.Disk { return c.disk }

// Close ends all fills and waits for them. Streams that need a fill end in ErrClosed.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.end(ErrClosed)
	c.mu.Unlock()
	c.tasks.Wait()
	if c.disk != nil {
		return c.disk.Close()
	}
	return nil
}

// Purge removes metadata and content of the files that match, and returns the number of entries.
// Fills for these files go on for their present readers, but their results are not stored. After a
// later SyncPurges the purge survives a power failure.
func (c *Cache) Purge(m Match) int {
	c.invalidate(m, nil)
	return c.metas.purge(m) + c.purgeTiers(m)
}

// SyncPurges returns when no purged segment is on disk, also after a power failure, or returns the
// error of the disk. It waits for the disk; calls at the same time share one wait.
func (c *Cache) SyncPurges() error {
	if c.disk == nil {
		return nil
	}
	return c.disk.Sync()
}

// groupOf returns the group of a file.
func groupOf(file string) string {
	group, _, _ := strings.Cut(file, "/")
	return group
}
