package tests

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// TestFleetCapacity: with copies = 1 a fleet holds what its disks hold together. A gateway that
// joins or dies changes the owners of its own share alone, and what some gateway still has is not
// downloaded for that.
func TestFleetCapacity(t *testing.T) {
	gateways, disk, size, files := 4, 12<<20, 256<<10, 288
	if long {
		gateways, disk, files = 8, 64<<20, 2560
	} else {
		t.Parallel()
	}
	o := fleetOptions{gateways: gateways, disk: true, storages: 1,
		cache: []string{"copies = 1", "memory_max = 1MB", fmt.Sprintf("disk_max = %d", disk)}}
	f := startFleet(t, o)

	content := randomContent(size)
	var ids []fdfs.FileID
	for i := range files {
		ids = append(ids, put(t, f.cluster, fdfstest.FileSpec{Group: "group1", Content: content, Ext: "bin",
			Created: longAgo.Add(-time.Duration(i) * time.Second)}))
	}
	f.agreed(ids[:128])
	f.ask(ids, size)
	whole := gateways * disk
	eventually.True(t, func() bool { return len(f.held(ids))*size >= whole*9/10 })
	t.Logf("%d gateways hold %d of %d bytes, %.3f", gateways, len(f.held(ids))*size, whole,
		float64(len(f.held(ids))*size)/float64(whole))

	owners := f.gateways[0].owners(ids)
	changes := func(what string, expected int) {
		held := f.held(ids)
		f.forgetCounts()
		f.ask(held, size)
		downloads := 0
		for _, s := range f.cluster.Storages() {
			downloads += s.Counts().Requests[fdfstest.CmdDownload]
		}
		f.agreed(ids[:128])
		now, changed := f.gateways[0].owners(ids), 0
		for i := range ids {
			if now[i] != owners[i] {
				changed++
			}
		}
		t.Logf("%s: %d of %d files changed owners (%.3f, expected %.3f); %d downloads of %d files that were held", what,
			changed, files,
			float64(changed)/float64(files), 1/float64(expected), downloads, len(held))
		require.LessOrEqual(t, float64(changed), (1/float64(gateways)+0.05)*float64(files), what)
		require.LessOrEqual(t, float64(downloads), 0.02*float64(len(held)), what)
		owners = now
	}
	o.cache = append(o.cache, "mutable_ttl = 10m")
	f.join(o)
	f.agreed(ids[:128])
	changes("one joins", gateways+1)

	f.gateways[0].Kill()
	f.gateways = f.gateways[1:]
	changes("one is killed", gateways+1)
}

// ask downloads files, each through some gateway.
func (f *fleet) ask(ids []fdfs.FileID, size int) {
	f.t.Helper()
	var asking errgroup.Group
	asking.SetLimit(8)
	client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	random := newRandom(uint64(len(ids)))
	for _, id := range ids {
		m := f.gateways[random.IntN(len(f.gateways))]
		asking.Go(func() error {
			resp, err := client.Get("http://" + m.addrs[0] + url(id))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			n, err := io.Copy(io.Discard, resp.Body)
			if err == nil && (resp.StatusCode != http.StatusOK || n != int64(size)) {
				err = fmt.Errorf("%s: %d bytes", resp.Status, n)
			}
			return err
		})
	}
	require.NoError(f.t, asking.Wait())
	f.settled()
}

// held is which files of one segment some gateway has on disk.
func (f *fleet) held(ids []fdfs.FileID) (list []fdfs.FileID) {
	f.t.Helper()
	names := map[string]bool{}
	for _, m := range f.gateways {
		require.NoError(f.t, filepath.WalkDir(m.disk, func(path string, _ fs.DirEntry, err error) error {
			names[filepath.Base(path)] = true
			return err
		}))
	}
	for _, id := range ids {
		if names[strings.ReplaceAll(id.String(), "/", "+")+"+0.seg"] {
			list = append(list, id)
		}
	}
	return list
}

// agreed waits until all gateways name the same owners, and each of them owns something.
func (f *fleet) agreed(ids []fdfs.FileID) {
	f.t.Helper()
	f.met()
	names := f.names()
	eventually.True(f.t, func() bool {
		first := f.gateways[0].owners(ids)
		for _, m := range f.gateways[1:] {
			if !slices.Equal(first, m.owners(ids)) {
				return false
			}
		}
		slices.Sort(first)
		return slices.Equal(names, slices.Compact(first))
	})
}

// owners names the owner of each file, as the gateway says; empty = none.
func (m *member) owners(ids []fdfs.FileID) []string {
	m.t.Helper()
	list := make([]string, len(ids))
	for i, id := range ids {
		if _, text := m.adminGet("/explain?url=" + id.String()); ownersStep.MatchString(text) {
			list[i] = ownersStep.FindStringSubmatch(text)[1]
		}
	}
	return list
}
