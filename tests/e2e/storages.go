package e2e

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// NewCluster starts a tracker and storages: by default two of group1 and one of group2.
func NewCluster(t *testing.T, o fdfstest.Options) *fdfstest.Cluster {
	t.Helper()
	o.OnUnknown = func(node string, r fdfstest.Request) { t.Errorf("%s was asked an unknown command: %v", node, r) }
	c, err := fdfstest.Start(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// Put stores a file in the storages of a cluster.
func Put(t *testing.T, c *fdfstest.Cluster, spec fdfstest.FileSpec) fdfs.FileID {
	t.Helper()
	id, err := c.Put(spec)
	require.NoError(t, err)
	return id
}

// EdgeConfig returns the configuration of a gateway without a store. Its timeouts are longer than
// Prompt: a response that waits for one of them is detected.
func EdgeConfig(c *fdfstest.Cluster, lines ...string) string {
	text := "base_path = /nowhere\nstore_path_count = 0\nurl_have_group_name = true\ngroup_name = group1\n" +
		"connect_timeout = 60\nnetwork_timeout = 60\n" +
		"http.default_content_type = application/octet-stream\nhttp.mime_types_filename = mime.types\n"
	for _, tracker := range c.Trackers() {
		text += "tracker_server = " + tracker + "\n"
	}
	return text + strings.Join(WithListen(lines), "\n") + "\n"
}

// Edge starts a gateway without a store for the cluster, and waits until it has the lists of a
// tracker. It has no cache, so every request goes to the storages.
func Edge(t *testing.T, c *fdfstest.Cluster, lines ...string) *Process {
	t.Helper()
	p := ServeConfig(t, WriteConfig(t, EdgeConfig(c, append(lines, NoCache...)...)))
	eventually.True(t, func() bool {
		status, _ := p.AdminGet("/readyz")
		return status == http.StatusOK
	})
	return p
}

// NoCache are the lines that switch the cache off.
var NoCache = []string{"[cache]", "memory_max = 0"}

// Path returns the path of the URL of a file.
func Path(id fdfs.FileID) string { return "/" + id.String() }

// LongAgo is the creation time of a file whose sync window is over.
var LongAgo = time.Date(2024, 2, 29, 12, 30, 45, 0, time.UTC)

// SlotFleets are the kinds of fleets that fetch slots of other hosts.
var SlotFleets = map[string]FleetOptions{
	"cache":        {Gateways: 1, Storages: 1},
	"small cache":  {Gateways: 1, Storages: 1, Cache: []string{"memory_max = 12MB"}, NoRedis: true},
	"fleet":        {Gateways: 2, Storages: 1},
	"fleet, disks": {Gateways: 2, Storages: 1, Disk: true},
	"no cache":     {Gateways: 1, Storages: 1, Cache: []string{"memory_max = 0"}, NoRedis: true},
}

// IDFrom returns the id of a file that was uploaded to the source long ago.
func IDFrom(t testing.TB, source fdfs.Source, group string) string {
	t.Helper()
	return IDOf(t, source, group, storetest.Created)
}

// IDOf returns the id of a file that was uploaded to the source at a time.
func IDOf(t testing.TB, source fdfs.Source, group string, created time.Time) string {
	t.Helper()
	id, err := fdfs.Encode(fdfs.Fields{Group: group, Source: source, Created: created.Unix(), Size: 7, Random: 99,
		Ext: "jpg"})
	require.NoError(t, err)
	return id.String()
}

// IDFromAddress returns the id of IDFrom for a source with an IPv4 address.
func IDFromAddress(t testing.TB, address, group string) string {
	t.Helper()
	return IDFrom(t, netip.MustParseAddr(address).As4(), group)
}
