package tracker

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/backoff"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/fdfstest"
)

// TestRecovers: a client that starts while all trackers are down loads its lists when one is up.
func TestRecovers(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t, fdfstest.Options{Trackers: 2, UseStorageIDs: true,
		Parameters: map[string]string{"storage_sync_file_max_delay": "77"}})
	for n := range 2 {
		cluster.Tracker(n).Kill()
	}
	c, log := newClient(t, Options{Trackers: each(cluster.Trackers()...), UseParameters: true,
		Parameters: Parameters{SyncMaxDelay: time.Hour}})
	require.False(t, c.Members().Known())
	require.False(t, c.Members().HasGroup("group1"))
	require.NoError(t, cluster.Tracker(1).Revive())
	eventually.True(t, func() bool { return log.Count("loaded from the trackers again") == 1 })
	require.True(t, c.Members().Known())
	require.Equal(t, 77*time.Second, c.Current().SyncMaxDelay)
	require.True(t, c.Current().UseStorageID)
	s, ok := c.Members().ByID(100003)
	require.True(t, ok)
	require.Equal(t, "group2", s.Group)
	require.Equal(t, 1, log.Count("cannot load lists and settings"))

	// The lists stay in use when the trackers are down again.
	for n := range 2 {
		cluster.Tracker(n).Kill()
	}
	c.LoadSoon()
	require.ErrorIs(t, ask(t.Context(), c), ErrUnavailable)
	eventually.True(t, func() bool { return log.Count("cannot load lists and settings") == 2 })
	require.True(t, c.Members().HasGroup("group2"))
	require.Equal(t, 77*time.Second, c.Current().SyncMaxDelay)
}

// TestQueryFindsTrackerBack: a query that gets a reply from a tracker that was down starts a load
// at once, even during a long back-off.
func TestQueryFindsTrackerBack(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t, fdfstest.Options{})
	cluster.Tracker(0).Kill()
	c := start(Options{Trackers: each(cluster.Trackers()...), Log: slog.New(slog.DiscardHandler)},
		backoff.Policy{First: time.Minute, Max: time.Minute})
	defer c.Close()
	<-c.Loaded()
	require.NoError(t, cluster.Tracker(0).Revive())
	require.NoError(t, ask(t.Context(), c))
	eventually.True(t, c.Members().Known)
}

// TestParametersOfTheConfiguration: the parameters of the configuration hold unless UseParameters
// is set. The members are loaded in both cases.
func TestParametersOfTheConfiguration(t *testing.T) {
	cluster := newCluster(t, fdfstest.Options{UseStorageIDs: true})
	c, _ := newClient(t, Options{Trackers: each(cluster.Trackers()...),
		Parameters: Parameters{SyncMaxDelay: time.Hour}})
	require.Equal(t, Parameters{SyncMaxDelay: time.Hour}, c.Current())
	require.Zero(t, cluster.Tracker(0).Counts().Requests[fdfstest.CmdParameters])
	require.Zero(t, cluster.Tracker(0).Counts().Requests[fdfstest.CmdStorageIDs])
	require.Len(t, c.Members().StoragesOf("group1"), 2)
	_, ok := c.Members().ByID(100001)
	require.True(t, ok, "the lists of storages name the ids too")
}

// TestRefresh: the lists are loaded again when they are due, and changes take effect.
func TestRefresh(t *testing.T) {
	cluster := newCluster(t, fdfstest.Options{})
	c, _ := newClient(t, Options{Trackers: each(cluster.Trackers()...), Refresh: 20 * time.Millisecond})
	list := c.Members().StoragesOf("group1")
	require.Len(t, list, 2)
	require.True(t, list[0].Active && list[1].Active)
	cluster.Storage(0).SetOnline(false)
	eventually.True(t, func() bool {
		now := c.Members().StoragesOf("group1")
		return now[0].Active && !now[1].Active && now[1].Host == "127.0.0.11"
	}, "it stands last now, and still belongs to the group")
	require.True(t, isKnown(c.Members(), addr("127.0.0.11")))
	require.True(t, list[0].Active, "a list that was given out does not change")
}

// TestLoadDuringProbes: a load does not wait for the probe of a tracker that hangs.
func TestLoadDuringProbes(t *testing.T) {
	cluster := newCluster(t, fdfstest.Options{Trackers: 2})
	c, log := newClient(t, Options{Trackers: each(cluster.Trackers()...)})
	cluster.Tracker(0).SetFaults(fdfstest.Faults{Garbage: true})
	for log.Count("does not reply") == 0 {
		require.NoError(t, ask(t.Context(), c))
	}
	probes := asked(cluster.Tracker(0))
	cluster.Tracker(0).SetFaults(fdfstest.Faults{Hang: true})
	eventually.True(t, func() bool { return asked(cluster.Tracker(0)) > probes })
	loads := cluster.Tracker(1).Counts().Requests[fdfstest.CmdListGroups]
	began := time.Now()
	c.mu.Lock()
	c.loadedAt = began.Add(-time.Minute)
	c.mu.Unlock()
	c.LoadSoon()
	eventually.True(t, func() bool { return cluster.Tracker(1).Counts().Requests[fdfstest.CmdListGroups] > loads })
	require.Less(t, time.Since(began), patient/2, "the probe has twice that time")
}

// TestPartialLoad: a group that cannot be loaded keeps its members, while those of other groups
// change.
func TestPartialLoad(t *testing.T) {
	var broken atomic.Bool
	tracker := fake(t, func(cmd fdfs.Command, body []byte) []byte {
		switch cmd {
		case fdfs.CmdListGroups:
			return packet(0, append(groupRecord("a", 1), groupRecord("b", 1)...))
		case fdfs.CmdListStorages:
			n := byte(1)
			if broken.Load() {
				n = 2
			}
			if body[0] == 'a' && broken.Load() {
				return packet(0, []byte("nonsense"))
			}
			return packet(0, storageRecord(7, "", netip.AddrFrom4([4]byte{10, 0, body[0], n}), 23000))
		}
		return packet(0, nil)
	})
	c, _ := newClient(t, Options{Trackers: each(tracker), Refresh: 20 * time.Millisecond})
	in := func(group string, n byte) bool {
		_, ok := c.Members().ByAddr(group, netip.AddrFrom4([4]byte{10, 0, group[0], n}))
		return ok
	}
	require.True(t, in("a", 1) && in("b", 1))
	broken.Store(true)
	eventually.True(t, func() bool { return in("b", 2) })
	eventually.True(t, func() bool { return !in("b", 1) })
	require.True(t, in("a", 1))
	broken.Store(false)
	eventually.True(t, func() bool { return in("b", 1) })
}

// listingOf starts a tracker that lists each letter of groups as a group with one storage. Letters
// behind a plus are further storages of the last group.
func listingOf(t *testing.T, groups *atomic.Value) string {
	return fake(t, func(cmd fdfs.Command, body []byte) []byte {
		names, others, _ := strings.Cut(groups.Load().(string), "+")
		switch {
		case cmd == fdfs.CmdListGroups:
			var list []byte
			for _, name := range names {
				list = append(list, groupRecord(string(name), 1)...)
			}
			return packet(0, list)
		case cmd == fdfs.CmdListStorages && strings.ContainsRune(names, rune(body[0])):
			list := storageRecord(7, "", netip.AddrFrom4([4]byte{10, 0, 0, body[0]}), 23000)
			if body[0] == names[len(names)-1] {
				for i := range len(others) {
					list = append(list, storageRecord(7, "", netip.AddrFrom4([4]byte{10, 0, 0, others[i]}), 23000)...)
				}
			}
			return packet(0, list)
		}
		return packet(2, nil)
	})
}

// listed returns the groups of a listingOf.
func listed(groups string) *atomic.Value {
	var v atomic.Value
	v.Store(groups)
	return &v
}

// TestTrackersDisagree: the storages of a group cannot reach one of two trackers. The members are
// those of both, and after a rejection by one tracker the other is asked.
func TestTrackersDisagree(t *testing.T) {
	c, _ := newClient(t, Options{Trackers: each(listingOf(t, listed("ab")), listingOf(t, listed("a")))})
	require.Len(t, c.Members().StoragesOf("b"), 1)
	require.True(t, c.Members().Partial())
	for range 2 { // with either tracker first
		list, err := c.Storages(t.Context(), "b")
		require.NoError(t, err)
		require.Len(t, list, 1)
	}
}

// TestPartialLists: a tracker that comes back lists only the storages that have joined it already.
// Other groups and storages stay for a time, and as long as another tracker lists them, or is down
// and has listed them. Meanwhile Partial is true.
func TestPartialLists(t *testing.T) {
	has := func(c *Client, groups string) {
		t.Helper()
		for _, name := range "abc" {
			require.Equal(t, strings.ContainsRune(groups, name), c.Members().HasGroup(string(name)), string(name))
		}
	}
	start := func(t *testing.T, trackers ...string) *Client {
		c, _ := newClient(t, Options{Trackers: each(trackers...), Refresh: time.Hour})
		withoutBackground(t, c)
		return c
	}
	t.Run("alone", func(t *testing.T) {
		groups := listed("ab+xy")
		c := start(t, listingOf(t, groups))
		require.False(t, c.Members().Partial())
		groups.Store("a")
		c.load(t.Context())
		has(c, "ab")
		require.Len(t, c.Members().StoragesOf("b"), 3)
		require.True(t, c.Members().Partial())
		require.Equal(t, []string{"b"}, c.Members().Remembered())
		groups.Store("ab+y")
		c.load(t.Context())
		require.Empty(t, c.Members().Remembered())
		b := c.Members().StoragesOf("b")
		require.Len(t, b, 3)
		require.Equal(t, "10.0.0.120", b[2].Host)
		require.True(t, b[1].Active && !b[2].Active, "one that is not listed comes last")
		groups.Store("a")
		c.o.Refresh = 0 // the time is over
		c.load(t.Context())
		has(c, "a")
		require.False(t, c.Members().Partial())
	})
	t.Run("beside a whole one", func(t *testing.T) {
		groups := listed("ab")
		c := start(t, listingOf(t, groups), listingOf(t, listed("abc")))
		groups.Store("a")
		c.o.Refresh = 0
		c.load(t.Context())
		has(c, "abc")
		require.True(t, c.Members().StoragesOf("b")[0].Active)
	})
	t.Run("beside one that is down", func(t *testing.T) {
		cluster := newCluster(t, fdfstest.Options{})
		c := start(t, listingOf(t, listed("a")), cluster.Trackers()[0])
		cluster.Tracker(0).Kill()
		c.o.Refresh = 0
		for range 2 {
			c.load(t.Context())
			require.True(t, c.Members().HasGroup("group2"))
		}
	})
	t.Run("back", func(t *testing.T) {
		cluster := newCluster(t, fdfstest.Options{})
		cluster.Tracker(0).Kill()
		c := start(t, cluster.Trackers()...)
		require.False(t, c.Members().Partial(), "nothing is known")
		require.NoError(t, cluster.Tracker(0).Revive())
		c.load(t.Context())
		require.True(t, c.Members().Partial())
		c.o.Refresh = 0
		c.load(t.Context())
		require.False(t, c.Members().Partial())
	})
}

// TestEmptyLists: the empty list of a tracker that has lost its lists does not replace that of the
// client.
func TestEmptyLists(t *testing.T) {
	var empty atomic.Bool
	var loadSoon atomic.Int32
	tracker := fake(t, func(cmd fdfs.Command, _ []byte) []byte {
		switch {
		case cmd == fdfs.CmdListGroups && empty.Load():
			loadSoon.Add(1)
			return packet(0, nil)
		case cmd == fdfs.CmdListGroups:
			return packet(0, groupRecord("a", 1))
		case cmd == fdfs.CmdListStorages:
			return packet(0, storageRecord(7, "5", netip.MustParseAddr("10.0.0.1"), 23000))
		}
		return packet(0, nil)
	})
	c, log := newClient(t, Options{Trackers: each(tracker), Refresh: 10 * time.Millisecond})
	empty.Store(true)
	eventually.True(t, func() bool { return loadSoon.Load() > 3 })
	require.True(t, c.Members().HasGroup("a"))
	_, ok := c.Members().ByID(5)
	require.True(t, ok)
	require.Zero(t, log.Count("does not reply"), "it does reply")
	require.Equal(t, 1, log.Count("cannot load lists and settings"))
}

// TestGroupWithoutStorages: a group whose storages were deleted does not make a load fail.
func TestGroupWithoutStorages(t *testing.T) {
	tracker := fake(t, func(cmd fdfs.Command, body []byte) []byte {
		switch {
		case cmd == fdfs.CmdListGroups:
			return packet(0, append(groupRecord("a", 1), groupRecord("b", 0)...))
		case cmd == fdfs.CmdListStorages && body[0] == 'a':
			return packet(0, storageRecord(7, "5", netip.MustParseAddr("10.0.0.1"), 23000))
		}
		return packet(0, nil)
	})
	c, log := newClient(t, Options{Trackers: each(tracker), Refresh: time.Hour})
	<-c.Loaded()
	require.True(t, c.Members().HasGroup("a"))
	require.Zero(t, log.Count("cannot load lists and settings"))
	eventually.True(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.loading && c.due.After(time.Now().Add(30*time.Minute))
	}, "the next load is not an early one")
}

// TestHalfDeadTracker: the back-off grows for a tracker that passes the active test and fails all
// other requests, and the log stays short.
func TestHalfDeadTracker(t *testing.T) {
	tracker := fake(t, func(cmd fdfs.Command, _ []byte) []byte {
		if cmd == fdfs.CmdActiveTest {
			return packet(0, nil)
		}
		return []byte("HTTP/1.1 400 Bad Request\r\n\r\n")
	})
	began := time.Now()
	_, log := newClient(t, Options{Trackers: each(tracker)})
	time.Sleep(400 * time.Millisecond)
	downs := log.Count("does not reply")
	most := int(time.Since(began) / (20 * time.Millisecond)) // the longest backoff is 20 to 40 ms
	require.Less(t, downs, most+8)
	eventually.True(t, func() bool { return log.Count("is back") > 0 })
}

func TestStorageIDPages(t *testing.T) {
	for name, c := range map[string]struct {
		pages []string // for each request: total, count, lines
		want  int
	}{
		"one page":             {[]string{"2 2 1 g h\n2 g h\n"}, 2},
		"without a last line":  {[]string{"2 2 1 g h\n2 g h"}, 2},
		"pages":                {[]string{"3 1 1 g h\n", "3 2 2 g h\n3 g h\n"}, 3},
		"grown meanwhile":      {[]string{"2 1 1 g h\n", "3 1 2 g h\n", "3 1 3 g h\n"}, 3},
		"shrunk meanwhile":     {[]string{"3 2 1 g h\n2 g h\n", "2 0 "}, 2},
		"none":                 {[]string{"0 0 "}, 0},
		"none, then no more":   {[]string{"3 1 1 g h\n", "3 0 "}, -1},
		"too many":             {[]string{"1 2 1 g h\n2 g h\n"}, -1},
		"beyond the total":     {[]string{"2 1 1 g h\n", "2 2 2 g h\n3 g h\n"}, -1},
		"fewer than promised":  {[]string{"2 2 1 g h\n"}, -1},
		"a line of nonsense":   {[]string{"1 1 hello\n"}, -1},
		"65537":                {[]string{"65537 1 1 g h\n"}, -1},
		"4 billion":            {[]string{"4294967295 4294967295 1 g h\n"}, -1},
		"eight bytes too many": {[]string{"0 0 1 g h\n"}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			var loadSoon []uint32
			tracker := fake(t, func(cmd fdfs.Command, body []byte) []byte {
				if cmd != fdfs.CmdStorageIDs {
					return packet(2, nil)
				}
				loadSoon = append(loadSoon, binary.BigEndian.Uint32(body))
				var total, count uint32
				text := c.pages[min(len(loadSoon), len(c.pages))-1]
				_, err := fmt.Sscan(text, &total, &count)
				if err != nil {
					t.Error(err)
				}
				b := binary.BigEndian.AppendUint32(nil, total)
				return packet(0, append(binary.BigEndian.AppendUint32(b, count), strings.SplitN(text, " ", 3)[2]...))
			})
			client, _ := newClient(t, Options{Trackers: each(tracker)})
			ids, err := client.StorageIDs(t.Context())
			if c.want < 0 {
				require.ErrorIs(t, err, fdfs.ErrProtocol)
				require.ErrorIs(t, err, ErrUnavailable)
				return
			}
			require.NoError(t, err)
			require.Len(t, ids, c.want)
			require.EqualValues(t, 0, loadSoon[0])
			for i := range len(loadSoon) - 1 {
				require.Less(t, loadSoon[i], loadSoon[i+1])
			}
		})
	}
}

// TestStorageIDsOfOneTracker: two trackers have the lines in different orders. All pages of a list
// come from one tracker.
func TestStorageIDsOfOneTracker(t *testing.T) {
	tracker := func(lines ...string) string {
		return fake(t, func(cmd fdfs.Command, body []byte) []byte {
			if cmd != fdfs.CmdStorageIDs {
				return packet(2, nil)
			}
			page := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(len(lines))), 1)
			return packet(0, append(page, lines[binary.BigEndian.Uint32(body)]...))
		})
	}
	c, _ := newClient(t, Options{Trackers: each(tracker("1 g a", "2 g b"), tracker("2 g b", "1 g a"))})
	for range 2 {
		ids, err := c.StorageIDs(t.Context())
		require.NoError(t, err)
		require.Len(t, ids, 2)
		require.NotEqual(t, ids[0].ID, ids[1].ID)
	}
}

func TestParseParameters(t *testing.T) {
	p, err := parseParameters("use_storage_id = Yes\r\nstorage_sync_file_max_delay=86400\n\n" +
		"no value\n=x\na=b=c\nuse_trunk_file=1\x00")
	require.NoError(t, err)
	require.Equal(t, Parameters{24 * time.Hour, true, 0}, p)
	for _, bad := range []string{"", "use_storage_id=1", "storage_sync_file_max_delay=",
		"storage_sync_file_max_delay=-1", "storage_sync_file_max_delay=1d",
		"storage_sync_file_max_delay=2147483648", "storage_sync_file_max_delay=99999999999999999999",
		strings.Repeat("x", 1<<16)} {
		_, err := parseParameters(bad)
		require.ErrorIs(t, err, fdfs.ErrProtocol, "%.50s", bad)
	}
}

func FuzzParseParameters(f *testing.F) {
	f.Add("use_storage_id=1\nstorage_sync_file_max_delay=86400\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseParameters(text)
		if err != nil {
			require.ErrorIs(t, err, fdfs.ErrProtocol)
			return
		}
		require.True(t, p.SyncMaxDelay >= 0 && p.SlotMaxSize >= 0)
	})
}

// groupRecord and storageRecord return records in the format of trackers since 6.13.
func groupRecord(name string, storages int) []byte {
	b := append([]byte(name), make([]byte, 113-len(name))...)
	binary.BigEndian.PutUint64(b[49:], uint64(storages))
	binary.BigEndian.PutUint64(b[57:], 23000)
	return b
}

func storageRecord(status byte, id string, addr netip.Addr, port int) []byte {
	b := make([]byte, 487)
	b[0], b[1] = status, 6
	if id == "" {
		id = addr.String()
	}
	copy(b[2:], id)
	copy(b[18:], addr.String())
	binary.BigEndian.PutUint64(b[130:], uint64(port))
	return b
}
