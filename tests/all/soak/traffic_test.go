package soak

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

const (
	remoteGroup  = "group9"
	clients      = 6
	pause        = 50 * time.Millisecond // of a client between two requests, on average
	testTimeout  = time.Minute           // of one response; a longer one is a failure
	disturbEvery = 4 * time.Second
	away         = 2 * time.Second // duration of an outage of a storage or Redis
	remoteFiles  = 160
	localFiles   = 40
)

// file is a file that clients request.
type file struct {
	id      fdfs.FileID
	content []byte
	local   bool
}

// files is the list of all files. Uploads replace the files of the storages in it.
type files struct {
	mu       sync.Mutex // guards the fields below
	list     []file
	replaced fdfs.FileID // the file that the last upload has replaced
}

// pick returns a random file. Files at the start of the list are more frequent.
func (f *files) pick(r *rand.Rand) file {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := r.IntN(len(f.list))
	return f.list[min(n, r.IntN(len(f.list)))]
}

// sizes of files: most are small, some have several segments of the cache.
var sizes = []int{500, 4 << 10, 20 << 10, 60 << 10, 200 << 10, 1 << 20, 3 << 20, 9 << 20}

// files stores the files and returns their list: normal files and trunk slots of the store, and
// files of the storages.
func (w *world) files() *files {
	f := &files{}
	for i := range localFiles {
		content := w.store.Bytes(sizes[i%len(sizes)])
		o := w.store.Normal("bin", content)
		if i%2 == 1 && len(content) <= 200<<10 {
			o = w.store.Trunk("bin", content)
		}
		f.list = append(f.list, file{o.ID, content, true})
	}
	for i := range remoteFiles {
		f.list = append(f.list, w.upload(i))
	}
	return f
}

// longAgo is the creation time of files whose sync window is over.
var longAgo = time.Date(2024, 2, 29, 12, 30, 45, 0, time.UTC)

// upload stores a new file in the storages. The number n determines its kind and size.
func (w *world) upload(n int) file {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	content := make([]byte, sizes[n%len(sizes)]+r.IntN(1000))
	for i := range content {
		content[i] = byte(r.Uint32())
	}
	spec := fdfstest.FileSpec{Group: remoteGroup, Content: content, Ext: "bin",
		Created: longAgo.Add(time.Duration(n) * time.Second)}
	if n%3 == 1 && len(content) < 1<<20 {
		spec.Kind = fdfs.KindTrunk
	}
	id, err := w.cluster.Put(spec)
	require.NoError(w.t, err)
	return file{id, content, false}
}

// traffic runs a client that sends requests until ctx ends.
func (w *world) traffic(ctx context.Context, f *files, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 4}
	client := &http.Client{Timeout: testTimeout, Transport: transport}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		one := f.pick(r)
		g := w.gateways[r.IntN(len(w.gateways))]
		if one.local {
			g = w.gateways[0]
		}
		if err := w.ask(client, r, g, one); err != nil {
			w.failures.add("%s: %s: %v", g.name, one.id, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(r.Int64N(int64(2 * pause)))):
		}
	}
}

// ask sends a request of a random kind and compares the response.
func (w *world) ask(client *http.Client, r *rand.Rand, g *node, f file) error {
	req, err := http.NewRequest(http.MethodGet, "http://"+g.Addr+"/"+f.id.String(), nil)
	if err != nil {
		return err
	}
	want, status, leaves := f.content, http.StatusOK, false
	switch kind := r.IntN(20); {
	case kind < 6:
		from := r.IntN(len(f.content))
		to := from + r.IntN(len(f.content)-from)
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to))
		want, status = f.content[from:to+1], http.StatusPartialContent
	case kind == 6:
		req.Method, want = http.MethodHead, nil
	case kind == 7:
		req.Header.Set("If-Modified-Since", time.Now().UTC().Format(http.TimeFormat))
		want, status = nil, http.StatusNotModified
	case kind == 8:
		leaves = len(f.content) > 1<<20
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	w.counts.requests.Add(1)
	if resp.StatusCode != status {
		return fmt.Errorf("%s %v: status %d in place of %d", req.Method, req.Header, resp.StatusCode, status)
	}
	if leaves { // the client disconnects in the middle of the body
		w.counts.cut.Add(1)
		want = want[:64<<10]
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(resp.Body, got); err != nil {
		return fmt.Errorf("%s %v: body: %w", req.Method, req.Header, err)
	}
	if w.counts.bytes.Add(int64(len(got))); !bytes.Equal(got, want) {
		at := 0
		for got[at] == want[at] {
			at++
		}
		return fmt.Errorf("%s %v: wrong byte at %d of %d", req.Method, req.Header, at, len(want))
	}
	return nil
}

// disturb makes one disturbance after the other until ctx ends. One storage is down at a time.
func (w *world) disturb(ctx context.Context, f *files) {
	tick := time.NewTicker(disturbEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		g := w.gateways[n%len(w.gateways)]
		switch n % 5 {
		case 0:
			w.purge(g, url.Values{"prefix": {remoteGroup + "/M00"}})
		case 1:
			s := w.cluster.Storage(n / 5 % 2)
			s.Kill()
			wait(ctx, away)
			if err := s.Revive(); err != nil {
				w.failures.add("a storage does not come back: %v", err)
			}
			w.counts.kills.Add(1)
		case 2:
			if err := syscall.Kill(g.PID(), syscall.SIGHUP); err != nil {
				w.failures.add("%s: %v", g.name, err)
			}
			w.counts.reloads.Add(1)
		case 3:
			w.exchange(f, n)
			w.counts.uploads.Add(1)
		case 4:
			w.redis.Pause()
			wait(ctx, away)
			w.redis.Resume()
			w.counts.pauses.Add(1)
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// exchange replaces a file of the storages in the list by a new file. It removes the file of the
// last exchange from the storages: no request for that one runs any more.
func (w *world) exchange(f *files, n int) {
	next, at := w.upload(remoteFiles+n), localFiles+n%remoteFiles
	f.mu.Lock()
	gone := f.replaced
	f.replaced, f.list[at] = f.list[at].id, next
	f.mu.Unlock()
	if gone == (fdfs.FileID{}) {
		return
	}
	if err := w.cluster.Remove(gone); err != nil {
		w.failures.add("cannot remove a file: %v", err)
	}
	w.purge(w.gateways[1], url.Values{"id": {gone.String()}})
}

// purge sends a purge. The response is 504 if a gateway that could not reach Redis has not applied
// the purge yet.
func (w *world) purge(g *node, query url.Values) {
	resp, err := http.Post("http://"+g.Admin+"/purge?"+query.Encode(), "", nil)
	if err != nil {
		w.failures.add("%s: purge: %v", g.name, err)
		return
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusGatewayTimeout {
		w.failures.add("%s: purge: status %d", g.name, resp.StatusCode)
	}
	w.counts.purges.Add(1)
}
