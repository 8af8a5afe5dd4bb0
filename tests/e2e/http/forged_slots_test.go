package http

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestDifferencesForgedSlots: an id that points to a slot header within the content of an uploaded
// file gets 404. Such a header claims bytes of the slots behind its own.
func TestDifferencesForgedSlots(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"by default":           nil,
		"nothing is kept open": {"[open_file_cache]", "max_files = 0", "memory = 0"},
		"kept in memory only":  {"[open_file_cache]", "max_files = 0"},
		"nothing in memory":    {"[open_file_cache]", "memory = 0"},
		"looked at each time":  {"[open_file_cache]", "valid = 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.New(t)
			secret := bytes.Repeat([]byte("secret of another user\n"), 40_000)
			upload, small := s.Forge(5000, 0x12345678)
			_, large := s.Forge(800_000, 0xffffffff)
			victim := s.Trunk("txt", secret)
			p := e2e.Serve(t, s, lines...)
			for range 3 {
				for _, forged := range []storetest.Object{small, large} {
					for _, header := range []string{
						"Accept: */*", "Range: bytes=2000-2999", "Range: bytes=-10",
						"If-Modified-Since: " + storetest.Created.Format(http.TimeFormat),
					} {
						a := p.Get(forged.URL(), header)
						require.Equal(t, 404, a.StatusCode, header)
						require.Equal(t, "file not found\n", string(a.Body))
					}
					require.Equal(t, 404, p.Do("HEAD", forged.URL()).StatusCode)
				}
				require.Equal(t, upload.Content, p.Get(upload.URL()).Body)
				require.Equal(t, secret, p.Get(victim.URL()).Body)
			}
			require.GreaterOrEqual(t, p.Metric("fdfs_gateway_crc_errors_total"), 2.0)
			p.Logged("trunk slot is not served")
			eventually.True(t, func() bool { return p.Metric("fdfs_gateway_open_files") == 0 })
		})
	}
}

// TestDifferencesForgedSlotIsNotFetched: a forged slot is not requested from the replicas, which
// have the same trunk file.
func TestDifferencesForgedSlotIsNotFetched(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	s := storetest.New(t)
	_, forged := s.Forge(5000, 0x12345678)
	s.Trunk("txt", s.Bytes(10_000))
	p := e2e.Serve(t, s, "tracker_server = "+c.Trackers()[0])
	asked := func() (n int) {
		for _, storage := range c.Storages() {
			n += storage.Counts().Total()
		}
		return n
	}
	before := asked()
	require.Equal(t, 404, p.Get(forged.URL()).StatusCode)
	require.Equal(t, before, asked())
	elsewhere := e2e.Put(t, c, fdfstest.FileSpec{Storage: c.Storage(0), Content: s.Bytes(99), Ext: "jpg",
		Created: e2e.LongAgo})
	before = asked()
	require.Equal(t, 200, p.Get(e2e.Path(elsewhere)).StatusCode)
	require.Greater(t, asked(), before, "they are asked for a file that is not here")
}

// TestSlotMaxSize: the configuration or the trackers set the maximum size of slots, which is 16 MB
// by default.
func TestSlotMaxSize(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	usual, large := s.Trunk("bin", s.Bytes(16<<20-fdfs.SlotHeaderSize)), s.Trunk("bin", s.Bytes(16<<20))
	c := e2e.NewCluster(t, fdfstest.Options{Parameters: map[string]string{"slot_max_size": fmt.Sprint(32 << 20)}})
	for name, test := range map[string]struct {
		lines       []string
		usual, want int
	}{
		"default":          {nil, 200, 404},
		"configuration":    {[]string{"[gateway]", "slot_max_size = 17MB"}, 200, 200},
		"smaller than 16M": {[]string{"[gateway]", "slot_max_size = 1MB"}, 404, 404},
		"trackers": {[]string{"tracker_server = " + c.Trackers()[0],
			"load_fdfs_parameters_from_tracker = true"}, 200, 200},
	} {
		t.Run(name, func(t *testing.T) {
			p := e2e.Serve(t, s, test.lines...)
			require.Equal(t, test.usual, p.Do("HEAD", usual.URL()).StatusCode)
			require.Equal(t, test.want, p.Do("HEAD", large.URL()).StatusCode)
		})
	}
}

// mismatchTime is the time for which a gateway stores that the content of a file does not match its
// id: in the cache for negative_ttl, else for longer.
const mismatchTime = 5 * time.Second

// TestForgedSlotsOfOtherHosts: no byte of a forged slot of another host reaches a client, whatever
// the size of the slot, with a cache, with a fleet, and with neither. The storages compare only the
// headers, and send the slot.
func TestForgedSlotsOfOtherHosts(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]e2e.FleetOptions{
		"cache":    {Gateways: 1, Storages: 1}, // if the first storage is slow, a second one would be asked
		"fleet":    {Gateways: 2, Storages: 1},
		"no cache": {Gateways: 1, Storages: 1, Cache: []string{"memory_max = 0"}, NoRedis: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := e2e.StartFleet(t, o)
			for _, size := range []int{100, 5000, 1 << 20, 9 << 20} {
				content, began := e2e.RandomContent(size), time.Now()
				forged, err := fdfs.Encode(fdfs.Fields{Group: "group1", Kind: fdfs.KindTrunk,
					Source:  fdfs.Source{127, 0, 0, 11},
					Created: e2e.LongAgo.Unix(), Size: int64(size), CRC32: 0x12345678,
					Trunk: fdfs.Trunk{ID: 1, Offset: 4096, Alloc: uint32(size) + 256}, Ext: "txt"})
				require.NoError(t, err)
				e2e.Put(t, f.Cluster, fdfstest.FileSpec{ID: forged.String(), Content: content})
				good := e2e.Put(t, f.Cluster, fdfstest.FileSpec{Group: "group1", Kind: fdfs.KindTrunk, Content: content,
					Ext: "bin", Created: e2e.LongAgo})
				for _, m := range f.Gateways {
					for _, header := range []string{"Accept: */*", "Range: bytes=0-9", "Range: bytes=-10"} {
						a := m.Get(e2e.Path(forged), header)
						require.Equal(t, 404, a.StatusCode, "%d bytes, %s", size, header)
						require.Equal(t, "file not found\n", string(a.Body))
					}
					require.Equal(t, content[:10], m.Get(e2e.Path(good), "Range: bytes=0-9").Body)
					require.Equal(t, content, m.Get(e2e.Path(good)).Body)
				}
				if time.Since(began) < mismatchTime {
					require.LessOrEqual(t, f.Cluster.Downloads(forged).Downloads, 3*len(f.Gateways),
						"a mismatch is remembered")
				}
				if o.Cache == nil {
					require.Equal(t, 1, f.Cluster.Downloads(good).Downloads, "checking costs no further download")
				}
			}
			require.GreaterOrEqual(t, f.Metric("fdfs_gateway_crc_errors_total"), 3.0)
		})
	}
}
