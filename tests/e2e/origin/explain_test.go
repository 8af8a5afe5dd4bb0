package origin

import (
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestExplainByTheRunningGateway: the command sends its request to the gateway at admin_listen of
// the configuration, and makes a fresh look if none runs there.
func TestExplainByTheRunningGateway(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: []byte("hello"), Ext: "txt",
		Created: e2e.LongAgo})
	missing := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: []byte("gone"), Ext: "txt",
		Created: e2e.LongAgo})
	require.NoError(t, c.Remove(missing))
	conf := e2e.WriteConfig(t, e2e.EdgeConfig(c, "[gateway]", "admin_listen = "+lab.Address(lab.Port())))
	explain := func(flags ...string) string {
		code, stdout, stderr := e2e.Run(t, append([]string{"explain", "-c", conf}, flags...)...)
		require.Equal(t, 0, code, stderr)
		require.Empty(t, stderr)
		return stdout
	}
	require.Contains(t, explain(id.String()), "by a fresh look", "no gateway runs")
	p := e2e.ServeConfig(t, conf)
	before := explain(id.String())
	require.Contains(t, before, "by the running gateway")
	require.Contains(t, before, "knows nothing of it")
	require.Equal(t, 200, p.Get(e2e.Path(id)).StatusCode)
	require.Equal(t, 404, p.Get(e2e.Path(missing)).StatusCode)
	after := explain(id.String())
	require.Contains(t, after, "knows it: 5 bytes")
	require.Regexp(t, c.Storage(0).Addr()+`: has it, 5 bytes \(healthy until now; failures in a row: 0, replies: [1-9]`,
		after)
	require.Contains(t, after, "200: by what the cache knows")
	require.Contains(t, explain(missing.String()), "no storage had it")
	require.Contains(t, explain("-fresh", id.String()), "by a fresh look")
	require.Contains(t, explain("-json", id.String()), `"by":"by the running gateway"`)
	c.Storage(0).Kill()
	other := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: []byte("other"), Ext: "txt",
		Created: e2e.LongAgo})
	require.Equal(t, 200, p.Get(e2e.Path(other)).StatusCode)
	require.Regexp(t, c.Storage(0).Addr()+`: .*\((suspect|dead) until now`, explain(other.String()))
}

// TestPathIndexIsDecidedOnce: an id with a store path that the group does not have on this host is
// 400 to a request, an explanation and a prefetch. None of them sends a request to the storages,
// which have the path.
func TestPathIndexIsDecidedOnce(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: 2, StorePaths: 4}}})
	id := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", PathIndex: 3, Content: []byte("elsewhere"),
		Created: e2e.LongAgo})
	p := e2e.Serve(t, storetest.New(t), "tracker_server = "+c.Trackers()[0])
	const reason = "bad file id: no such store path"
	a := p.Get(e2e.Path(id))
	require.Equal(t, 400, a.StatusCode)
	require.Equal(t, reason+"\n", string(a.Body))
	_, text := p.AdminGet("/explain?url=" + id.String())
	require.Contains(t, text, "400: "+reason)
	_, text = p.AdminPost("/prefetch", id.String()+"\n")
	require.Contains(t, text, reason)
	for _, storage := range c.Storages() {
		require.Zero(t, storage.Counts().Requests[fdfstest.CmdFileInfo]+
			storage.Counts().Requests[fdfstest.CmdDownload])
	}
}
