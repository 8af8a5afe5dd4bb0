package cache

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/testing/cachetest"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// TestCopies: the first Copies gateways in rank for a file keep it on disk.
func TestCopies(t *testing.T) {
	o, onDisk := newOrigin(testFile(1), 1000), 0
	list := gateways(t, newFleet(), 3, Options{Copies: 2})
	for _, c := range list {
		require.NoError(t, c.OpenDisk(tier.DiskOptions{Path: t.TempDir()}))
	}
	for _, c := range list {
		requireWhole(t, o, get(background, c, o))
	}
	for _, c := range list {
		eventually.True(t, func() bool { return c.n.fills.Load() == 0 })
		if _, held := c.Disk().Holds(tier.KeyAt(o.file, 0)); held {
			onDisk++
		}
	}
	require.Equal(t, 2, onDisk)
}

// cutOff is the source of a gateway that reaches no storage.
type cutOff struct{ *origin }

func (cutOff) Stat(context.Context, Version) (Version, error) { return Version{}, errOrigin }

func (cutOff) Fetch(context.Context, *Version, int64, int64) (Version, io.ReadCloser, error) {
	return Version{}, nil, errOrigin
}

// TestOwnerCutOff: if the owner of a file reaches no storage and has only expired metadata, another
// gateway revalidates this with a storage, and serves the result. Without any storage, the expired
// content is served.
func TestOwnerCutOff(t *testing.T) {
	for _, name := range []string{"changed", "deleted", "the same", "no storage at all"} {
		bubble(t, name, func(t *testing.T) {
			o := newOrigin(testFile(1), 1000)
			o.v.Immutable = false
			list := gateways(t, newFleet(), 2, Options{})
			requireWhole(t, o, get(background, list[0], o))
			list[0].o.Source = func(string, string) (Source, error) { return cutOff{o}, nil }
			before := o.stats.Load()
			switch name {
			case "changed":
				o.set(func() {
					o.content = cachetest.Content("new", 1500)
					o.v.Size, o.v.ModTime = 1500, o.v.ModTime+1e9
				})
			case "deleted":
				o.set(func() { o.content = nil })
			case "no storage at all":
				o.set(func() { o.down = true })
			}
			for range 3 {
				time.Sleep(time.Minute)
				if r := get(background, list[1], o); name == "deleted" {
					require.ErrorIs(t, r.err, ErrNotFound)
				} else {
					requireWhole(t, o, r)
				}
			}
			if name == "the same" {
				require.EqualValues(t, 3, o.stats.Load()-before, "it is confirmed each time")
				require.EqualValues(t, 1, o.fetches.Load(), "the owner gives the bytes")
			}
		})
	}
}

// TestStaleCopy: an expired copy of the former owner is served while no storage replies, until
// stale_if_error is over.
func TestStaleCopy(t *testing.T) {
	bubble(t, "storages down", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		f := newFleet()
		list := gateways(t, f, 2, Options{})
		f.do(func() { f.names = []string{"b"} })
		requireWhole(t, o, get(background, list[1], o))
		o.set(func() { o.down = true })
		time.Sleep(2 * time.Hour)
		f.do(func() { f.names = []string{"a", "b"} }) // a has just joined
		requireWhole(t, o, get(background, list[0], o))
		time.Sleep(48 * time.Hour)
		require.Error(t, get(background, list[0], o).err, "not for ever")
	})
}

// openBodies is a Fleet that counts the open responses of peers.
type openBodies struct {
	Fleet
	open *int
}

func (f openBodies) Open(ctx context.Context, peer string, r PeerRequest) (Meta, io.ReadCloser, error) {
	m, body, err := f.Fleet.Open(ctx, peer, r)
	if body == nil {
		return m, body, err
	}
	*f.open++
	return m, closeFunc{body, func() { *f.open-- }}, err
}

type closeFunc struct {
	io.ReadCloser
	close func()
}

func (c closeFunc) Close() error {
	c.close()
	return c.ReadCloser.Close()
}

// TestNoBodyWhileMemoryIsFull: a response of a peer is not kept open while there is no memory for
// it. Unread responses fill the connection, and block the responses on it that would end the wait.
func TestNoBodyWhileMemoryIsFull(t *testing.T) {
	bubble(t, "full", func(t *testing.T) {
		o := newOrigin(testFile(1), SegmentSize)
		list := gateways(t, newFleet(), 2, Options{Memory: 16 << 20})
		c, open := list[1], 0
		c.o.Fleet = openBodies{c.o.Fleet, &open}
		require.NoError(t, c.leaderRoom.all.acquireBytes(background, minRoom))
		require.NoError(t, c.waiterRoom.all.acquireBytes(background, minRoom))
		done := make(chan result, 1)
		go func() { done <- get(background, c, o) }()
		time.Sleep(5 * second)
		synctest.Wait()
		require.Zero(t, open)
		c.waiterRoom.all.releaseBytes(minRoom)
		requireWhole(t, o, <-done)
		require.EqualValues(t, 1, o.fetches.Load())
		c.leaderRoom.all.releaseBytes(minRoom)
	})
}

// TestQueueOfDetachedFills: while the fleet is down, the queue of fills without readers before a
// source that hangs is bounded.
func TestQueueOfDetachedFills(t *testing.T) {
	bubble(t, "source hangs", func(t *testing.T) {
		f := newFleet()
		f.down = true
		c := gateways(t, f, 1, Options{SourceLimit: 2})[0]
		for i := range 200 {
			o := noFile(testFile(i))
			o.first = time.Hour
			ctx, cancel := context.WithTimeout(background, second)
			_, err := c.Get(ctx, o.file, o, GetOptions{})
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.LessOrEqual(t, c.Stats().Fills, int64(2+70))
	})
}

// splitRank is a Fleet of two gateways, each of which owns every second file.
type splitRank struct {
	*member
	own func(key string) bool
}

func (s splitRank) Rank(key string, _ int) []string {
	other := "a"
	if s.name == "a" {
		other = "b"
	}
	if s.own(key) {
		return []string{"", other}
	}
	return []string{other, ""}
}

// TestNoWaitInACircle: two gateways whose rooms are full of requests to each other still get their
// files.
func TestNoWaitInACircle(t *testing.T) {
	bubble(t, "two gateways", func(t *testing.T) {
		f := newFleet()
		list := gateways(t, f, 2, Options{Wait: 20 * second})
		var files []*origin
		for i := range 12 {
			o := newOrigin(testFile(i), SegmentSize)
			o.first = second
			files = append(files, o)
		}
		for i, c := range list {
			c.o.Fleet = splitRank{c.o.Fleet.(*member), func(key string) bool {
				n := slices.IndexFunc(files, func(o *origin) bool { return strings.HasPrefix(key, o.file) })
				return n%2 == i
			}}
			c.leaderRoom, c.waiterRoom = newRoom(2*SegmentSize), newRoom(2*SegmentSize)
			for _, o := range files { // the version is known, so room is reserved before a request to a peer
				_, err := c.Get(background, o.file, o, GetOptions{Hint: NoHint})
				require.NoError(t, err)
			}
		}
		var running sync.WaitGroup
		for i, o := range files {
			running.Go(func() {
				if r := get(background, list[(i+1)%2], o); r.err != nil || len(r.body) != SegmentSize {
					t.Errorf("file %d: %d bytes, %v", i, len(r.body), r.err)
				}
			})
		}
		running.Wait()
		for _, o := range files {
			require.EqualValues(t, 1, o.fetches.Load())
		}
	})
}

// TestHolderAskedAgain: a gateway that could not reach the holder of the lease reads from it after
// the lease is released, also if the holder is no owner of the entry.
func TestHolderAskedAgain(t *testing.T) {
	bubble(t, "holder", func(t *testing.T) {
		o := newOrigin(testFile(1), 1<<20)
		o.first, o.whole = second/10, second/10
		f := newFleet()
		f.cut["a"], f.cut["owner"] = true, true
		ranks := map[string][]string{"a": {""}, "b": {"owner", ""}}
		list := map[string]*Cache{}
		for name, names := range ranks {
			list[name] = newCache(t, Options{Fleet: &otherRank{&member{f: f, name: name}, names},
				Source: func(string, string) (Source, error) { return o, nil }})
			f.caches[name] = list[name]
		}
		leader := make(chan result, 1)
		go func() { leader <- get(context.Background(), list["a"], o) }()
		synctest.Wait()
		time.AfterFunc(second/10, func() { f.do(func() { f.cut["a"] = false }) })
		requireWhole(t, o, get(context.Background(), list["b"], o))
		requireWhole(t, o, <-leader)
		require.EqualValues(t, 1, o.fetches.Load())
	})
}
