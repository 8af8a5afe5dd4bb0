package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/crowd"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// adminPost posts to the admin listener.
func (p *process) adminPost(path, body string) (int, string) {
	p.t.Helper()
	resp, err := http.Post("http://"+p.admin+path, "text/plain", strings.NewReader(body))
	require.NoError(p.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(text)
}

// changing is a file that can change, and has not been looked at again since it was cached.
type changing struct {
	id      fdfs.FileID
	content []byte
}

func (f *fleet) putChanging() *changing {
	f.t.Helper()
	content := randomContent(3000)
	id := put(f.t, f.cluster, fdfstest.FileSpec{Group: "group1", Content: content, Kind: fdfs.KindAppender, Ext: "log",
		Created: longAgo})
	return &changing{id, content}
}

// change gives the file other content in the storages.
func (f *fleet) change(c *changing) {
	f.t.Helper()
	before := c.content
	for string(c.content) == string(before) {
		c.content = randomContent(len(before) + 1)
	}
	require.NoError(f.t, f.cluster.Change(c.id, c.content, time.Now()))
}

// requirePurged: a purge lets every gateway serve what the storages have now.
func (f *fleet) requirePurged(purge func(id string) error) {
	f.t.Helper()
	require.NoError(f.t, f.punctually(func() error {
		c := f.putChanging()
		f.warm(c.id, c.content)
		old := c.content
		f.change(c)
		requireWhole(f.t, f.crowd(3, c.id, old)) // it is cached, and no gateway asks
		if err := purge(c.id.String()); err != nil {
			return err
		}
		requireWhole(f.t, f.crowd(9, c.id, c.content))
		return nil
	}))
}

// reachedAll is nil where the answer to a purge is that three gateways have applied it: one that
// waits in vain for Redis does not reach them.
func reachedAll(well bool, text string) error {
	if !well || strings.Join(strings.Fields(text), "") != `{"gateways":3}` {
		return fmt.Errorf("the answer to a purge is %q", text)
	}
	return nil
}

// TestCachePurge: a file, a folder or all files are forgotten by every gateway before the purge
// returns.
func TestCachePurge(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 3})
	cli := func(args ...string) error {
		code, stdout, stderr := run(t, append([]string{"purge", "-json", "-admin", f.gateways[1].admin}, args...)...)
		return reachedAll(code == 0, stdout+stderr)
	}
	admin := func(query string) error {
		status, text := f.gateways[2].adminPost("/purge?"+query, "")
		return reachedAll(status == 200, text)
	}
	folder := func(id string) string { return id[:len("group1/M00/00/00/")] }
	other := f.putChanging()
	f.warm(other.id, other.content)
	f.requirePurged(func(id string) error { return cli("-id", id) })
	f.requirePurged(func(id string) error { return admin("id=" + id) })
	before := f.cluster.Downloads(other.id).Downloads
	requireWhole(t, f.crowd(3, other.id, other.content))
	require.Equal(t, before, f.cluster.Downloads(other.id).Downloads, "other files stay")
	f.requirePurged(func(id string) error { return cli("-prefix", folder(id)) })
	f.requirePurged(func(id string) error { return admin("prefix=" + strings.TrimSuffix(folder(id), "/")) })
	f.requirePurged(func(string) error { return admin("prefix=group1/M00") })
	f.requirePurged(func(string) error { return admin("prefix=group1") })
	f.requirePurged(func(string) error { return cli("-all") })
	f.requirePurged(func(string) error { return admin("all=1") })
	for _, bad := range []string{"", "id=", "id=nothing", "prefix=group1/M", "prefix=..", "all=0",
		"all=1&id=" + other.id.String(), "what=1"} {
		status, text := f.gateways[0].adminPost("/purge?"+bad, "")
		require.Equal(t, 400, status, "%s: %s", bad, text)
	}
}

// TestCachePurgeWithOneAway: a gateway that is stopped is named after 5 s, and applies the purge
// before it serves again.
func TestCachePurgeWithOneAway(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 3})
	require.NoError(t, f.punctually(func() error { return f.purgeWithout(f.gateways[1]) }))
}

// purgeWithout plays that. Its error says that the answer to the purge is another one.
func (f *fleet) purgeWithout(away *member) error {
	c := f.putChanging()
	f.warm(c.id, c.content)
	f.change(c)
	away.Pause()
	status, text := f.gateways[0].adminPost("/purge?id="+c.id.String(), "")
	var answer struct {
		Gateways int
		Missing  []string
	}
	err := json.Unmarshal([]byte(text), &answer)
	if err != nil || status != 504 || answer.Gateways != 2 || !slices.Equal(answer.Missing, []string{away.name()}) {
		away.Resume()
		return fmt.Errorf("the answer to a purge has status %d: %q", status, text)
	}
	resumed := make(chan struct{})
	time.AfterFunc(300*time.Millisecond, func() {
		defer close(resumed)
		away.Resume()
	})
	// These are the first ones that it answers: their connections wait for it.
	requireWhole(f.t, crowd.Run(crowd.Options{Clients: 20, URLs: urlsOf([]*member{away}, c.id), Want: c.content,
		Timeout: crowdTime}))
	<-resumed
	requireWhole(f.t, f.crowd(9, c.id, c.content))
	return nil
}

// TestCachePrefetch: a list of files is fetched, with a line for each.
func TestCachePrefetch(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 1})
	var ids []string
	for _, size := range []int{1, 4 << 10, 5 << 20} {
		id, content := f.put(size)
		ids = append(ids, id.String())
		defer func() {
			f.fault(fdfstest.Faults{Hang: true})
			r := f.crowd(1, id, content)
			requireWhole(t, r)
			require.Equal(t, "HIT", r[0].XCache)
		}()
	}
	text := gatewayCommand(t, append([]string{"prefetch", "-admin", f.gateways[0].admin}, ids...)...)
	for i, size := range []string{"1", "4096", "5242880"} {
		require.Contains(t, text, ids[i]+" fetched "+size+"\n")
	}
	require.True(t, strings.HasSuffix(text, "\ndone: 3 files, 0 failed\n"), text)
	f.settled() // the last bytes are given out before they are stored

	gone := put(t, f.cluster, fdfstest.FileSpec{Group: "group1", Content: []byte("gone"), Ext: "bin", Created: longAgo})
	require.NoError(t, f.cluster.Remove(gone))
	status, text := f.gateways[0].adminPost("/prefetch", ids[0]+"\n\n/"+gone.String()+"\nnonsense\n")
	require.Equal(t, 200, status)
	require.Contains(t, text, ids[0]+" cached 1\n")
	require.Contains(t, text, gone.String()+" error: ")
	require.Contains(t, text, "nonsense error: ")
	require.True(t, strings.HasSuffix(text, "\ndone: 3 files, 2 failed\n"), text)
	code, _, _ := run(t, "prefetch", "-admin", f.gateways[0].admin, gone.String())
	require.Equal(t, 1, code)
}

// TestCachePrefetchTellsAsItGoes: the line of a file comes when it is there, not when all are.
func TestCachePrefetchTellsAsItGoes(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 1})
	first, _ := f.put(1000)
	list, lines := io.Pipe()
	answered := make(chan *http.Response, 1)
	go func() {
		resp, err := http.Post("http://"+f.gateways[0].admin+"/prefetch", "text/plain", list)
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	_, err := io.WriteString(lines, first.String()+"\n")
	require.NoError(t, err)
	resp := <-answered // while the list goes on
	require.NotNil(t, resp)
	defer resp.Body.Close()
	text := make([]byte, len(first.String())+len(" fetched 1000\n"))
	_, err = io.ReadFull(resp.Body, text)
	require.NoError(t, err)
	require.Equal(t, first.String()+" fetched 1000\n", string(text))
	require.NoError(t, lines.Close())
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "done: 1 files, 0 failed\n", string(rest))
}

// showsLocks looks at the locks of two gateways during a fill and after it. Its error says that
// they do not share it.
func (f *fleet) showsLocks() error {
	id, content := f.put(10 << 10)
	vain := f.waitedInVain()
	f.slow(0, time.Hour, 10<<10) // until it was seen
	done := make(chan crowd.Report)
	go func() { done <- f.crowd(10, id, content) }()
	locks := func(m *member) string {
		status, text := m.adminGet("/locks")
		require.Equal(f.t, 200, status)
		return text
	}
	both := ""
	seen := func() bool { return strings.Contains(both, id.String()) && strings.Contains(both, `"Fence"`) }
	eventually.True(f.t, func() bool {
		both = locks(f.gateways[0]) + locks(f.gateways[1])
		return seen() || f.waitedInVain() > vain
	})
	f.fault()
	requireWhole(f.t, <-done)
	if n := f.cluster.Downloads(id).Downloads; n != 1 || !seen() {
		return fmt.Errorf("%d downloads, and these locks: %s", n, both)
	}
	eventually.True(f.t, func() bool { return strings.TrimSpace(locks(f.gateways[0])) == "[]" })
	eventually.True(f.t, func() bool {
		return !strings.Contains(locks(f.gateways[0])+locks(f.gateways[1]), id.String())
	}, "it was given back")
	return nil
}

// TestCacheLocksAndStatus: during a fill the admin listeners show who has its lock and who waits;
// the status is there for people and for programs.
func TestCacheLocksAndStatus(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 2, storages: 1})
	require.NoError(t, f.punctually(f.showsLocks))
	status, text := f.gateways[0].adminGet("/status")
	require.Equal(t, 200, status)
	require.Contains(t, text, "Stampedes absorbed")
	require.Contains(t, text, f.gateways[1].name(), "the other gateways")
	status, text = f.gateways[0].adminGet("/status.json")
	require.Equal(t, 200, status)
	var sections map[string]map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &sections))
	for _, name := range []string{"gateway", "files", "storages", "cache", "fleet", "gateways", "health"} {
		require.NotEmpty(t, sections[name], name)
	}
	require.Equal(t, "live", sections["gateways"][f.gateways[1].name()])
}
