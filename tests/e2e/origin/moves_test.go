package origin

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// freshFor is the time for which lists of the trackers count as fresh: the gateway never loads them
// twice within it.
const freshFor = 2 * time.Second

// loads returns the number of times that the lists were loaded.
func loads(c *fdfstest.Cluster) int { return c.Tracker(0).Counts().Requests[fdfstest.CmdListGroups] }

// TestStorageMoves: the first request after the only storage of a group has moved to another
// address gets its file, with and without storage ids, with and without a cache, also if the old
// address does not respond, not even on open connections.
func TestStorageMoves(t *testing.T) {
	t.Parallel()
	// The cases contain all four combinations of any two of the flags.
	for _, c := range []struct{ useIDs, kept, young, silent bool }{{}, {false, true, true, true},
		{true, false, true, true}, {true, true, false, true}, {true, true, true, false}} {
		t.Run(fmt.Sprintf("ids %v, cache %v, young %v, silent %v", c.useIDs, c.kept, c.young, c.silent),
			func(t *testing.T) {
				t.Parallel()
				storageMoves(t, c.useIDs, c.kept, c.young, c.silent)
			})
	}
}

// storageMoves runs one case. silent means that the old address drops all packets.
func storageMoves(t *testing.T, useIDs, kept, young, silent bool) {
	c := e2e.NewCluster(t, fdfstest.Options{UseStorageIDs: useIDs,
		StorageIDs: []string{"100001 group1 127.0.0.11", "100003 group2 127.0.0.13"}})
	before, after := c.Storage(0), c.Storage(1)
	after.SetListed(false)
	created := e2e.LongAgo
	if young {
		created = time.Now()
	}
	content := storetest.New(t).Bytes(30000)
	put := func(s *fdfstest.Storage) string {
		return e2e.Path(e2e.Put(t, c, fdfstest.FileSpec{Storage: s, Content: content, Ext: "jpg", Created: created}))
	}
	lines := e2e.NoCache
	if kept {
		lines = nil
	}
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, strings.Replace("load_fdfs_parameters_from_tracker = true\n"+
		e2e.EdgeConfig(c, lines...), "connect_timeout = 60", "connect_timeout = 2", 1)))
	require.Equal(t, content, p.Get(put(before)).Body)
	if silent {
		require.NoError(t, before.Silence())
	} else {
		before.Kill()
	}
	before.SetListed(false)
	after.SetListed(true)
	for seen := -1; seen != loads(c); { // after a recent load the next one would not be allowed
		seen = loads(c)
		time.Sleep(freshFor + time.Second)
	}
	require.Equal(t, content, p.Get(put(before)).Body, "an id with the old address")
	require.Equal(t, content, p.Get(put(after)).Body, "an id with the new one")
}

// TestNewGroup: the first request for a file of a new group gets it.
func TestNewGroup(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	c.Storage(2).SetListed(false)
	id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(2), Content: []byte("hello"), Ext: "txt",
		Created: e2e.LongAgo})
	p := e2e.Edge(t, c)
	require.Equal(t, 404, p.Get(e2e.Path(id)).StatusCode)
	c.Storage(2).SetListed(true)
	time.Sleep(freshFor)
	a := p.Get(e2e.Path(id))
	require.Equal(t, "hello", string(a.Body))
}

// TestUpgradeKeepsGroups: while this process alone knows a group, since its tracker does not list
// it any more, no new process takes over, which would deny its files.
func TestUpgradeKeepsGroups(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	id := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(2), Content: []byte("hello"), Ext: "txt",
		Created: e2e.LongAgo})
	p := e2e.Edge(t, c)
	c.Storage(2).SetListed(false)
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGHUP))
	other := strings.Replace(e2e.Path(id), "group2", "group9", 1)
	eventually.True(t, func() bool { return p.Get(other).StatusCode == 503 }, "the lists may lack groups")
	u := p.Upgrades()
	u.Signal(syscall.SIGUSR2)
	u.Logged(1, "no tracker lists group2 any more")
	require.Equal(t, "hello", string(p.Get(e2e.Path(id)).Body))
}

// TestReloadLoadsLists: SIGHUP makes the gateway request the lists from the trackers again, also if
// the configuration has not changed.
func TestReloadLoadsLists(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	p := e2e.Edge(t, c)
	before := loads(c)
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGHUP))
	eventually.True(t, func() bool { return loads(c) > before })
}
