package cache

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// library is many files, and how they are asked for.
type library struct {
	memory, disk int // budgets in bytes
	small, large int // how many files
	smallSize    int // at most; the smallest is an eighth of it
	largeSize    int
	requests     int
}

// TestCacheRatios sends workloads through a memory and a disk that are too small for them: budgets
// are kept, popular files are found, and a scan of cold files does not push them out of the memory.
func TestCacheRatios(t *testing.T) {
	if !e2e.Long {
		t.Parallel() // others wait most of the time
	}
	l := library{memory: 16 << 20, disk: 64 << 20, small: 3000, large: 18, smallSize: 16 << 10, largeSize: 5 << 20,
		requests: 2000}
	if e2e.Long {
		l = library{memory: 64 << 20, disk: 1 << 30, small: 100_000, large: 200, smallSize: 16 << 10,
			largeSize: 10 << 20, requests: 100_000}
	}
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, NoRedis: true, Disk: true,
		Cache: []string{fmt.Sprintf("memory_max = %d", l.memory), fmt.Sprintf("disk_max = %d", l.disk)}})
	books := l.put(f)
	scanned := len(books) / 2 // the others are for the scan alone
	zipf := newZipf(scanned, 0.9)
	popular := func(r *rand.Rand, _ int) (int, bool) { return zipf.next(r), true }
	first := l.run(t, f, "Zipf 0.9, from empty", books, popular)
	plain := l.run(t, f, "Zipf 0.9, going on", books, popular)
	polluted := l.run(t, f, "Zipf 0.9, and a scan of cold files with every other request", books,
		func(r *rand.Rand, i int) (int, bool) {
			if i%2 == 0 {
				return scanned + i/2%(len(books)-scanned), false
			}
			return zipf.next(r), true
		})
	require.Greater(t, first.hits, 0.7*(1-first.once), "what was asked for before is mostly there")
	require.Greater(t, polluted.memory, 0.5*plain.memory, "a scan does not empty the memory")
}

// book is a file of the library.
type book struct {
	id      fdfs.FileID
	content []byte
}

// put stores the files. Many have the same content, and every one its own id. Large ones are among
// the popular and the others alike.
func (l *library) put(f *e2e.Fleet) []book {
	large := e2e.RandomContent(l.largeSize)
	var contents [][]byte
	for i := range 8 {
		contents = append(contents, e2e.RandomContent(l.smallSize*(i+1)/8))
	}
	books := make([]book, 0, l.small+l.large)
	seen := map[fdfs.FileID]bool{}
	for i := range l.small + l.large {
		content := contents[i%len(contents)]
		if every := (l.small + l.large) / l.large; i%every == every/2 {
			content = large
		}
		id := e2e.Put(f.T, f.Cluster, fdfstest.FileSpec{Group: "group1", Content: content, Ext: "bin",
			Created: e2e.LongAgo.Add(time.Duration(i) * time.Second)})
		seen[id] = true
		books = append(books, book{id, content})
	}
	require.Len(f.T, seen, len(books), "ids differ")
	return books
}

// ratios are what a workload has shown.
type ratios struct {
	hits   float64 // segments that were found, of those that count
	memory float64 // of these, in memory
	once   float64 // what would be fetched if each file was fetched once, likewise
}

// run asks for files, as next says: which one, and whether it counts.
func (l *library) run(t *testing.T, f *e2e.Fleet, name string, books []book,
	next func(r *rand.Rand, i int) (int, bool)) ratios {
	t.Helper()
	m := f.Gateways[0]
	const workers = 16
	memory, before := hits(m, "memory"), downloads(f, books)
	var running sync.WaitGroup
	var mu sync.Mutex // guards wanted and popular
	wanted, popular := 0, make(map[int]bool)
	for w := range workers {
		running.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
			defer client.CloseIdleConnections()
			random := e2e.NewRandom(rand.Uint64())
			for i := w; i < l.requests; i += workers {
				n, counts := next(random, i)
				if err := ask(client, "http://"+m.Addrs[0], &books[n]); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if counts {
					wanted += e2e.SegmentsOf(len(books[n].content))
					popular[n] = true
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	fetched := 0
	for i, n := range downloads(f, books) {
		if popular[i] {
			fetched += n - before[i]
		}
	}
	usedMemory := m.Metric(`fdfs_gateway_cache_bytes{tier="memory"}`) +
		m.Metric(`fdfs_gateway_cache_bytes{tier="records"}`)
	usedDisk := m.Metric(`fdfs_gateway_cache_bytes{tier="disk"}`)
	require.LessOrEqual(t, usedMemory, 1.05*float64(l.memory))
	require.LessOrEqual(t, usedDisk, 1.05*float64(l.disk))
	r := ratios{hits: 1 - float64(fetched)/float64(wanted), once: float64(len(popular)) / float64(wanted),
		memory: (hits(m, "memory") - memory) / float64(wanted)} // no scanned file is asked for twice
	t.Logf(
		"%s: %d segments of %d popular files wanted, %.1f %% found in memory, %.1f %% on disk, %.1f %% fetched (each "+
			"file once would be %.1f %%); "+
			"memory %.1f of %d MiB, disk %.1f of %d MiB, resident %d KB", name, wanted, len(popular), 100*r.memory,
		100*(r.hits-r.memory), 100-100*r.hits,
		100*r.once, usedMemory/(1<<20), l.memory>>20, usedDisk/(1<<20), l.disk>>20, e2e.MemoryOf(t, m.PID(), "VmRSS"))
	return r
}

// downloads are how often the segments of each file were fetched.
func downloads(f *e2e.Fleet, books []book) []int {
	counts := make([]int, len(books))
	for _, storage := range f.Cluster.Storages() {
		files := storage.Counts().Files
		for i := range books {
			counts[i] += files[books[i].id.String()].Downloads
		}
	}
	return counts
}

// hits are the segments that were found in a tier.
func hits(m *e2e.Member, tier string) float64 {
	return m.Metric(`fdfs_gateway_cache_hits_total{tier="` + tier + `"}`)
}

// ask reads a file.
func ask(client *http.Client, base string, b *book) error {
	resp, err := client.Get(base + e2e.Path(b.id))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != 200 || !bytes.Equal(body, b.content)) {
		err = fmt.Errorf("status %d and %d bytes for a file of %d", resp.StatusCode, len(body), len(b.content))
	}
	return err
}

// zipf draws numbers from 0 on, number i as often as 1/(i+1)^s says. math/rand has it for s over 1
// only.
type zipf struct{ sums []float64 }

func newZipf(n int, s float64) *zipf {
	z := &zipf{make([]float64, n)}
	sum := 0.0
	for i := range z.sums {
		sum += math.Pow(float64(i+1), -s)
		z.sums[i] = sum
	}
	return z
}

func (z *zipf) next(r *rand.Rand) int {
	i, _ := slices.BinarySearch(z.sums, r.Float64()*z.sums[len(z.sums)-1])
	return min(i, len(z.sums)-1)
}
