package cache

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/stampede"

	"github.com/stretchr/testify/require"
)

// TestCachePurge: a purge of a file, a folder or all files has removed them from the cache of every
// gateway when its response comes.
func TestCachePurge(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 3})
	cli := func(args ...string) error {
		code, stdout, stderr := e2e.Run(t, append([]string{"purge", "-json", "-admin", f.Gateways[1].AdminAddr},
			args...)...)
		return e2e.ReachedAll(code == 0, stdout+stderr)
	}
	admin := func(query string) error {
		status, text := f.Gateways[2].AdminPost("/purge?"+query, "")
		return e2e.ReachedAll(status == 200, text)
	}
	folder := func(id string) string { return id[:len("group1/M00/00/00/")] }
	other := f.PutChanging()
	f.Warm(other.ID, other.Content)
	f.RequirePurged(func(id string) error { return cli("-id", id) })
	f.RequirePurged(func(id string) error { return admin("id=" + id) })
	before := f.Cluster.Downloads(other.ID).Downloads
	e2e.RequireWhole(t, f.Stampede(3, other.ID, other.Content))
	require.Equal(t, before, f.Cluster.Downloads(other.ID).Downloads, "other files stay")
	f.RequirePurged(func(id string) error { return cli("-prefix", folder(id)) })
	f.RequirePurged(func(id string) error { return admin("prefix=" + strings.TrimSuffix(folder(id), "/")) })
	f.RequirePurged(func(string) error { return admin("prefix=group1/M00") })
	f.RequirePurged(func(string) error { return admin("prefix=group1") })
	f.RequirePurged(func(string) error { return cli("-all") })
	f.RequirePurged(func(string) error { return admin("all=1") })
	for _, bad := range []string{"", "id=", "id=nothing", "prefix=group1/M", "prefix=..", "all=0",
		"all=1&id=" + other.ID.String(), "what=1"} {
		status, text := f.Gateways[0].AdminPost("/purge?"+bad, "")
		require.Equal(t, 400, status, "%s: %s", bad, text)
	}
}

// TestCachePurgeWithOneAway: the response to a purge names a stopped gateway after 5 s, and that
// gateway applies the purge before it serves again.
func TestCachePurgeWithOneAway(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 3})
	require.NoError(t, f.Punctually(func() error { return purgeWithout(f, f.Gateways[1]) }))
}

// purgeWithout purges a file while one gateway is stopped. Its error is an unexpected response to
// the purge.
func purgeWithout(f *e2e.Fleet, away *e2e.Member) error {
	c := f.PutChanging()
	f.Warm(c.ID, c.Content)
	f.Change(c)
	away.Pause()
	status, text := f.Gateways[0].AdminPost("/purge?id="+c.ID.String(), "")
	var response struct {
		Gateways int
		Missing  []string
	}
	err := json.Unmarshal([]byte(text), &response)
	if err != nil || status != 504 || response.Gateways != 2 || !slices.Equal(response.Missing, []string{away.Name()}) {
		away.Resume()
		return fmt.Errorf("the response to a purge has status %d: %q", status, text)
	}
	resumed := make(chan struct{})
	time.AfterFunc(300*time.Millisecond, func() {
		defer close(resumed)
		away.Resume()
	})
	// These are the first requests of the resumed gateway: their connections wait for it.
	e2e.RequireWhole(f.T, stampede.Run(stampede.Options{Clients: 20, URLs: e2e.URLs([]*e2e.Member{away}, c.ID),
		Want: c.Content}))
	<-resumed
	e2e.RequireWhole(f.T, f.Stampede(9, c.ID, c.Content))
	return nil
}

// TestCachePrefetch: prefetch fetches a list of files, and prints a line for each.
func TestCachePrefetch(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1})
	var ids []string
	for _, size := range []int{1, 4 << 10, 5 << 20} {
		id, content := f.Put(size)
		ids = append(ids, id.String())
		defer func() {
			f.Fault(fdfstest.Faults{Hang: true})
			r := f.Stampede(1, id, content)
			e2e.RequireWhole(t, r)
			require.Equal(t, "HIT", r[0].XCache)
		}()
	}
	text := e2e.RunOK(t, append([]string{"prefetch", "-admin", f.Gateways[0].AdminAddr}, ids...)...)
	for i, size := range []string{"1", "4096", "5242880"} {
		require.Contains(t, text, ids[i]+" fetched "+size+"\n")
	}
	require.True(t, strings.HasSuffix(text, "\ndone: 3 files, 0 failed\n"), text)
	f.Settled() // the last bytes are sent before they are stored

	gone := e2e.Put(t, f.Cluster, fdfstest.FileSpec{Group: "group1", Content: []byte("gone"), Ext: "bin",
		Created: e2e.LongAgo})
	require.NoError(t, f.Cluster.Remove(gone))
	status, text := f.Gateways[0].AdminPost("/prefetch", ids[0]+"\n\n/"+gone.String()+"\nnonsense\n")
	require.Equal(t, 200, status)
	require.Contains(t, text, ids[0]+" cached 1\n")
	require.Contains(t, text, gone.String()+" error: ")
	require.Contains(t, text, "nonsense error: ")
	require.True(t, strings.HasSuffix(text, "\ndone: 3 files, 2 failed\n"), text)
	code, _, _ := e2e.Run(t, "prefetch", "-admin", f.Gateways[0].AdminAddr, gone.String())
	require.Equal(t, 1, code)
}

// showsLocks checks /locks of two gateways during a fill and after it. Its error means that the
// gateways did not share the fill, or did not show its lock.
func showsLocks(f *e2e.Fleet) error {
	id, content := f.Put(10 << 10)
	vain := f.WaitedInVain()
	f.Slow(0, time.Hour, 10<<10) // the fill lasts until f.Fault
	done := make(chan stampede.Report)
	go func() { done <- f.Stampede(10, id, content) }()
	locks := func(m *e2e.Member) string {
		status, text := m.AdminGet("/locks")
		require.Equal(f.T, 200, status)
		return text
	}
	both := ""
	seen := func() bool { return strings.Contains(both, id.String()) && strings.Contains(both, `"Fence"`) }
	eventually.True(f.T, func() bool {
		both = locks(f.Gateways[0]) + locks(f.Gateways[1])
		return seen() || f.WaitedInVain() > vain
	})
	f.Fault()
	e2e.RequireWhole(f.T, <-done)
	if n := f.Cluster.Downloads(id).Downloads; n != 1 || !seen() {
		return fmt.Errorf("%d downloads, and these locks: %s", n, both)
	}
	eventually.True(f.T, func() bool { return strings.TrimSpace(locks(f.Gateways[0])) == "[]" })
	eventually.True(f.T, func() bool {
		return !strings.Contains(locks(f.Gateways[0])+locks(f.Gateways[1]), id.String())
	}, "it was given back")
	return nil
}

// TestCacheLocksAndStatus: during a fill the admin listeners show the holder of its lock and the
// waiters. /status is for people, /status.json for programs.
func TestCacheLocksAndStatus(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Storages: 1})
	require.NoError(t, f.Punctually(func() error { return showsLocks(f) }))
	status, text := f.Gateways[0].AdminGet("/status")
	require.Equal(t, 200, status)
	require.Contains(t, text, "Coalesced requests")
	require.Contains(t, text, f.Gateways[1].Name(), "the other gateways")
	status, text = f.Gateways[0].AdminGet("/status.json")
	require.Equal(t, 200, status)
	var sections map[string]map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &sections))
	for _, name := range []string{"gateway", "files", "storages", "cache", "fleet", "gateways", "health"} {
		require.NotEmpty(t, sections[name], name)
	}
	require.Equal(t, "live", sections["gateways"][f.Gateways[1].Name()])
	gateways := sections["gateways"]
	delete(sections, "gateways") // its keys are the names of gateways
	for name, section := range sections {
		require.Regexp(t, snakeCase, name)
		for key := range section {
			require.Regexp(t, snakeCase, key, name)
		}
	}
	require.Len(t, gateways, 2)
}

// snakeCase matches a key of /status.json.
var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
