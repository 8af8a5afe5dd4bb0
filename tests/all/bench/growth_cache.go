package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/stampede"
)

// cacheGrowths returns the figures of the cache, which nginx does not have.
func (w *world) cacheGrowths() []growth {
	return []growth{
		{name: "Cached files", quantity: "files of 1 KiB", figure: "memory without their content, MB", first: 62_500,
			alone: true, measure: w.entryMemory},
		{name: "Evictions", quantity: "segments in memory", figure: "time to store one and evict one, us",
			first: 62_500, alone: true, measure: w.evictionTime},
		{name: "Restart", quantity: "segments on disk", figure: "time to the first response, ms", first: 6250,
			alone: true, measure: w.restartTime},
		{name: "Gateways", quantity: "gateways", figure: "processor time of all for 300 downloads of 16 MiB, s",
			first: 1, doubled: 3, alone: true, measure: w.fleetCost},
	}
}

// memorySource is a storage in this process: each file has the same content.
type memorySource struct{ version cache.Version }

const cachedSize = kib

func newMemorySource() memorySource {
	content := make([]byte, cachedSize)
	return memorySource{cache.Version{Size: cachedSize, ModTime: created.UnixNano(), CRC32: crc32.ChecksumIEEE(content),
		Immutable: true}}
}

func (memorySource) Name() string                                  { return group }
func (memorySource) Unlisted() bool                                { return false }
func (m memorySource) Stat(context.Context) (cache.Version, error) { return m.version, nil }
func (memorySource) NegativeTTL() time.Duration                    { return 0 }
func (memorySource) RequestedAs() string                           { return "" }
func (memorySource) Exclude(string)                                {}
func (m memorySource) Fetch(context.Context, *cache.Version, int64, int64) (cache.Version, io.ReadCloser, error) {
	return m.version, io.NopCloser(bytes.NewReader(make([]byte, cachedSize))), nil
}
func (memorySource) Recheck(context.Context, cache.Version, checksum.Sum, []string) (sum checksum.Sum, err error) {
	return sum, errors.New("the content of the bench is not the one of its CRC32")
}

// cachedName returns the name of a file in the cache.
func cachedName(i int) string {
	return fmt.Sprintf("%s/M00/%02X/%02X/wKgABF5xyzmAAAAAAAAAA%08d.bin", group, i>>8&255, i&255, i)
}

// heap returns the bytes of all live objects. It waits until other goroutines have released theirs:
// a later release would count as saved memory.
func heap() int64 {
	bytes := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // of pools, whose objects survive one collection
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	last := bytes()
	for range 20 {
		time.Sleep(50 * time.Millisecond)
		now := bytes()
		if now >= last-64*kib {
			return now
		}
		last = now
	}
	return last
}

// entryMemory measures the live heap for cached files before their first response: metadata, and a
// segment each.
func (w *world) entryMemory(n int, _ *settings) (func(side) (float64, error), error) {
	src := newMemorySource()
	return func(side) (float64, error) {
		c := cache.New(cache.Options{Memory: 16 << 30, TTL: time.Hour})
		before := heap()
		for i := range n {
			if _, err := c.Get(context.Background(), cachedName(i), src, cache.GetOptions{}); err != nil {
				return 0, errors.Join(err, c.Close())
			}
		}
		if err := await(func() bool { return c.Stats().Fills == 0 }); err != nil {
			return 0, errors.Join(err, c.Close())
		}
		grown, s := heap()-before, c.Stats()
		var err error
		if s.Records != n || s.Memory.Entries != n {
			err = fmt.Errorf("%d files of %d are cached, %d segments", s.Records, n, s.Memory.Entries)
		}
		return float64(grown-int64(n)*cachedSize) / 1e6, errors.Join(err, c.Close())
	}, nil
}

// evictionTime measures the time to store a segment in a full memory tier, which evicts one.
func (w *world) evictionTime(n int, _ *settings) (func(side) (float64, error), error) {
	const more = 100_000
	segment := func(i int) *tier.Segment {
		return &tier.Segment{Key: tier.Key{File: cachedName(i)}, Chunks: [][]byte{make([]byte, cachedSize)}}
	}
	return func(side) (float64, error) {
		m := tier.NewMemory(16 << 30)
		for i := range n {
			m.Put(segment(i))
		}
		m.SetBudget(m.Stats().Bytes)
		list := make([]*tier.Segment, more)
		for i := range list {
			list[i] = segment(n + i)
		}
		runtime.GC()
		begin := time.Now()
		for _, s := range list {
			m.Put(s)
		}
		took := time.Since(begin)
		if s := m.Stats(); s.Evicted < more*99/100 {
			return 0, fmt.Errorf("%d segments of %d were evicted for %d new ones", s.Evicted, n, more)
		}
		return float64(took) / float64(time.Microsecond) / more, nil
	}, nil
}

// restartTime measures the time from the start of a gateway, with a file and other segments on its
// disk, until a client has the file.
func (w *world) restartTime(n int, s *settings) (func(side) (float64, error), error) {
	dir, err := os.MkdirTemp(w.dir, "restart-")
	if err != nil {
		return nil, err
	}
	objects, _, err := w.remote(1, 64*kib)
	if err != nil {
		return nil, err
	}
	o := lab.GatewayOptions{Binary: s.gateway, Dir: dir, Trackers: w.cluster.Trackers(),
		Cache: []string{"disk_path = " + filepath.Join(dir, "cache")}}
	if _, err := firstResponse(o, &objects[0]); err != nil {
		return nil, err
	}
	if err := fillDisk(filepath.Join(dir, "cache"), n-1); err != nil {
		return nil, err
	}
	return func(side) (float64, error) {
		for _, one := range w.cluster.Storages() {
			one.ResetCounts()
		}
		took, err := firstResponse(o, &objects[0])
		for _, one := range w.cluster.Storages() {
			if err == nil && one.Counts().Requests[fdfstest.CmdDownload] > 0 {
				err = errors.New("the file did not come from the disk")
			}
		}
		return float64(took) / float64(time.Millisecond), err
	}, nil
}

// firstResponse starts a gateway, and requests a file every millisecond until it has arrived. It
// returns the time since before the start, and stops the gateway when the file is on its disk.
func firstResponse(o lab.GatewayOptions, of *object) (took time.Duration, err error) {
	o.Port = lab.Port()
	arrived := make(chan error, 1)
	begin := time.Now()
	go func() {
		var last error
		err := await(func() bool {
			last = download("http://"+lab.Address(o.Port)+of.path, of)
			return last == nil
		})
		took = time.Since(begin)
		if err != nil {
			err = errors.Join(err, last)
		}
		arrived <- err
	}()
	g, err := lab.StartGateway(o)
	if err != nil {
		return 0, errors.Join(err, <-arrived)
	}
	defer g.Stop() // drops segments that wait for the disk
	if err := <-arrived; err != nil {
		return 0, err
	}
	return took, await(func() bool { return onDisk(g) })
}

// download requests a file and compares it.
func download(url string, of *object) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return of.check(resp.Body)
}

// onDisk reports whether the cache of a gateway has segments on disk.
func onDisk(g *lab.Gateway) bool {
	of, err := g.Metrics()
	return err == nil && of[`fdfs_gateway_cache_bytes{tier="disk"}`] > 0
}

// fillDisk stores segments in the folder of a cache.
func fillDisk(path string, n int) error {
	d, err := tier.OpenDisk(tier.DiskOptions{Path: path, Max: 1 << 40})
	if err != nil {
		return err
	}
	chunks := [][]byte{make([]byte, cachedSize)}
	for i := range n {
		s := &tier.Segment{Key: tier.Key{File: cachedName(i)}, Chunks: chunks}
		if err := await(func() bool { return d.Put(s) }); err != nil { // the queue is full
			return errors.Join(err, d.Close())
		}
	}
	// A segment in the queue is not on disk yet, and Close drops it.
	err = await(func() bool { return d.Stats().Entries == n+1 }) // with the file that was fetched
	return errors.Join(err, d.Close())
}

// errAwaited is the error of await after testTimeout.
var errAwaited = errors.New("what was waited for has not come")

// await waits until ok returns true.
func await(ok func() bool) error {
	for end := time.Now().Add(testTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return errAwaited
		}
	}
	return nil
}

// fleetClients is the number of clients of fleetCost.
const fleetClients = 300

// fleetCost measures gateways that share a Redis, and fetch a file for many clients.
func (w *world) fleetCost(n int, s *settings) (func(side) (float64, error), error) {
	dir, err := os.MkdirTemp(w.dir, "fleet-")
	if err != nil {
		return nil, err
	}
	return func(side) (cost float64, err error) {
		redis, err := lab.StartRedis(dir)
		if err != nil {
			return 0, err
		}
		defer redis.Stop()
		content := w.store.content(16 * mib)
		objects, err := w.remoteOf(content, 1)
		if err != nil {
			return 0, err
		}
		var gateways []*lab.Gateway
		var urls []string
		for range n {
			g, err := lab.StartGateway(lab.GatewayOptions{Binary: s.gateway, Dir: dir, Trackers: w.cluster.Trackers(),
				Redis: redis.Addr})
			if err != nil {
				return 0, err
			}
			defer g.Stop()
			gateways, urls = append(gateways, g), append(urls, "http://"+g.Addr+objects[0].path)
		}
		before, err := fleetCPU(gateways)
		if err != nil {
			return 0, err
		}
		report := stampede.Run(stampede.Options{Clients: fleetClients, URLs: urls, Want: content})
		if whole := report.Count(stampede.Whole); whole != fleetClients {
			return 0, fmt.Errorf("%d clients of %d got the file", whole, fleetClients)
		}
		after, err := fleetCPU(gateways)
		return (after - before).Seconds(), err
	}, nil
}

// fleetCPU returns the processor time of gateways since their start.
func fleetCPU(gateways []*lab.Gateway) (sum time.Duration, err error) {
	for _, g := range gateways {
		u, err := usageOf(g.PID())
		if err != nil {
			return 0, err
		}
		sum += u.cpu
	}
	return sum, nil
}
