package tracker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/fdfstest"
)

func TestMain(m *testing.M) {
	eventually.Together()
	goleak.VerifyTestMain(m)
}

// TestQueries: every query works with both sizes of addresses, with and without storage ids.
func TestQueries(t *testing.T) {
	for _, o := range []fdfstest.Options{
		{}, {AddressSize: 45}, {UseStorageIDs: true}, {UseStorageIDs: true, IDsPerReply: 1, AddressSize: 45},
	} {
		t.Run(fmt.Sprintf("%d %v", o.AddressSize, o.UseStorageIDs), func(t *testing.T) {
			cluster := newCluster(t, o)
			c, _ := newClient(t, Options{Trackers: each(cluster.Trackers()...), UseParameters: true})
			ctx := t.Context()
			groups, err := c.Groups(ctx)
			require.NoError(t, err)
			port := int(cluster.Storage(0).AddrPort().Port())
			require.Equal(t, []fdfs.GroupInfo{{Name: "group1", Port: port},
				{Name: "group2", Port: port}}, groups)
			list, err := c.Storages(ctx, "group1")
			require.NoError(t, err)
			require.Len(t, list, 2)
			require.Equal(t, cluster.Storage(0).AddrPort(), netip.AddrPortFrom(list[0].Addr, uint16(list[0].Port)))
			require.EqualValues(t, fdfs.StatusActive, list[0].Status)

			p, err := c.Parameters(ctx)
			require.NoError(t, err)
			require.Equal(t, 24*time.Hour, p.SyncMaxDelay)
			require.EqualValues(t, 512<<10, p.SlotMaxSize)
			require.Equal(t, o.UseStorageIDs, p.UseStorageID)
			require.Equal(t, p, c.Current())

			ids, err := c.StorageIDs(ctx)
			require.NoError(t, err)
			if o.UseStorageIDs {
				require.Len(t, ids, 3)
				require.Equal(t, fdfs.StorageID{ID: 100001, Group: "group1", Hosts: []string{"127.0.0.11"},
					Port: port}, ids[0])
			} else {
				require.Empty(t, ids)
			}
		})
	}
}

// TestRejections: a tracker that rejects a request has replied, so it does not count as dead.
func TestRejections(t *testing.T) {
	cluster := newCluster(t, fdfstest.Options{Trackers: 2})
	c, log := newClient(t, Options{Trackers: each(cluster.Trackers()...)})
	_, err := c.Storages(t.Context(), "group9")
	require.ErrorIs(t, err, fdfs.ErrNotFound)
	require.NotErrorIs(t, err, ErrUnavailable)
	require.Zero(t, log.Count("does not reply"))

	for _, n := range []int{0, 1} { // for a busy tracker another one replies, and the busy one does not count as dead
		cluster.Tracker(n).SetFaults(fdfstest.Faults{Status: 16, Times: 2})
		for range 2 {
			require.NoError(t, ask(t.Context(), c))
		}
		cluster.Tracker(n).SetFaults()
	}
	require.Zero(t, log.Count("does not reply"))
}

func TestTurns(t *testing.T) {
	cluster := newCluster(t, fdfstest.Options{Trackers: 3})
	c, _ := newClient(t, Options{Trackers: each(cluster.Trackers()...)})
	for range 30 {
		require.NoError(t, ask(t.Context(), c))
	}
	for n := range 3 {
		require.Equal(t, 10, asked(cluster.Tracker(n)))
	}
}

// TestDeadTracker: a dead tracker delays at most one query, is then in back-off, and is used again
// when it runs again.
func TestDeadTracker(t *testing.T) {
	cluster := newCluster(t, fdfstest.Options{Trackers: 2})
	c, log := newClient(t, Options{Trackers: each(cluster.Trackers()...)})
	cluster.Tracker(0).Kill()
	for range 20 {
		require.NoError(t, ask(t.Context(), c))
	}
	require.Equal(t, 1, log.Count("does not reply"))
	require.Equal(t, 1, log.Count(cluster.Tracker(0).Addr()+" error="))
	down, up := c.Health()[0], c.Health()[1]
	require.Equal(t, cluster.Trackers()[:1], down.Addresses)
	require.False(t, down.Up)
	require.ErrorContains(t, down.LastError, "connection")
	require.WithinDuration(t, time.Now(), down.LastErrorAt, time.Minute)
	require.True(t, up.Up)
	require.NoError(t, up.LastError)
	require.GreaterOrEqual(t, up.Replies, 20)
	require.Positive(t, up.Latency)
	require.NoError(t, cluster.Tracker(0).Revive())
	eventually.True(t, func() bool { return log.Count("is back") == 1 })
	require.True(t, c.Health()[0].Up)
	cluster.Tracker(0).ResetCounts()
	for range 10 {
		require.NoError(t, ask(t.Context(), c))
	}
	require.Equal(t, 5, asked(cluster.Tracker(0)))
}

// TestHangingTracker: a tracker that hangs, or whose host is off, delays one query by the timeout.
func TestHangingTracker(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*fdfstest.Node){
		"hangs":     func(n *fdfstest.Node) { n.SetFaults(fdfstest.Faults{Hang: true}) },
		"partition": func(n *fdfstest.Node) { n.Partition(true) },
		"silent":    func(n *fdfstest.Node) { require.NoError(t, n.Silence()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const timeout = 2 * time.Second // longer than any stall of the machine
			cluster := newCluster(t, fdfstest.Options{Trackers: 2})
			c, log := newClient(t, Options{Trackers: each(cluster.Trackers()...), Timeout: timeout})
			fail(cluster.Tracker(0))
			slow := 0
			for range 20 {
				began := time.Now()
				require.NoError(t, ask(t.Context(), c))
				if time.Since(began) >= timeout {
					slow++
				}
			}
			require.True(t, slow >= 1 && slow <= 3,
				"%d of 20 queries were slow; one has to be, a busy machine may add some", slow)
			require.Equal(t, 1, log.Count(cluster.Tracker(0).Addr()+" did not reply within 2s"))
		})
	}
}

func TestContext(t *testing.T) {
	cluster := newCluster(t, fdfstest.Options{Trackers: 2})
	c, log := newClient(t, Options{Trackers: each(cluster.Trackers()...)})
	for n := range 2 {
		cluster.Tracker(n).SetFaults(fdfstest.Faults{Hang: true})
	}
	cause := errors.New("the client is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(30*time.Millisecond, func() { cancel(cause) })
	require.ErrorIs(t, ask(ctx, c), cause)
	require.ErrorIs(t, ask(ctx, c), cause)
	require.Zero(t, log.Count("does not reply"), "it says nothing about the trackers")
}

// TestTwoAddresses: if the first address of a tracker is dead, the second one is used, and stays
// the preferred one.
func TestTwoAddresses(t *testing.T) {
	cluster := newCluster(t, fdfstest.Options{})
	c, log := newClient(t, Options{Trackers: [][]string{{deadAddress(), cluster.Tracker(0).Addr()}, {}}})
	for range 5 {
		require.NoError(t, ask(t.Context(), c))
	}
	require.Equal(t, []int{1, 0}, c.trackers[0].addresses())
	require.Zero(t, log.Count("does not reply"))
	require.Len(t, c.trackers, 1)
}

// TestLyingTracker: for a tracker with a wrong reply of any kind another one replies, and no memory
// is allocated for a wrong length.
func TestLyingTracker(t *testing.T) {
	rightServers := func(group string) []byte {
		b := fdfs.AppendGroup(nil, group)
		b = append(b, append([]byte("10.0.0.9"), make([]byte, 7)...)...)
		return binary.BigEndian.AppendUint64(b, 23000)
	}
	for name, lie := range map[string][]byte{
		"wrong group": packet(0, rightServers("group2")), "empty": packet(0, nil),
		"cut":   packet(0, rightServers("group1")[:30]),
		"short": packet(0, rightServers("group1"))[:40], "noise": bytes.Repeat([]byte{0xa5}, 100),
		"2 GB":             fdfs.Header{Length: 2 << 30, Command: fdfs.CmdReply}.AppendTo(nil),
		"another protocol": []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "nothing": nil,
	} {
		t.Run(name, func(t *testing.T) {
			var lies atomic.Int32
			liar := fake(t, func(cmd fdfs.Command, _ []byte) []byte {
				if cmd == fdfs.CmdListStorages {
					lies.Add(1)
				}
				return lie
			})
			cluster := newCluster(t, fdfstest.Options{})
			c, _ := newClient(t, Options{Trackers: each(liar, cluster.Tracker(0).Addr()), Timeout: time.Second})
			withoutBackground(t, c) // the first load has marked the tracker as down
			before := allocated()
			for range 2 { // with either tracker first
				list, err := c.Storages(t.Context(), "group1")
				require.NoError(t, err)
				require.ElementsMatch(t, storages(cluster, "group1"), addresses(list))
			}
			after := allocated()
			require.NotZero(t, lies.Load())
			require.Less(t, after-before, uint64(8<<20))
			require.Len(t, c.Members().StoragesOf("group1"), 2)
			require.False(t, isKnown(c.Members(), addr("10.0.0.9")))
		})
	}
}

func TestAllDown(t *testing.T) {
	c, log := newClient(t, Options{Trackers: each(deadAddress(), deadAddress()), UseParameters: true,
		Refresh:    20 * time.Millisecond,
		Parameters: Parameters{SyncMaxDelay: time.Hour, UseStorageID: true},
		StorageIDs: []fdfs.StorageID{{ID: 7, Group: "group1", Hosts: []string{"10.0.0.1"}}}})
	began := time.Now()
	require.ErrorIs(t, ask(t.Context(), c), ErrUnavailable)
	require.Less(t, time.Since(began), patient/2)
	require.Equal(t, Parameters{SyncMaxDelay: time.Hour, UseStorageID: true}, c.Current(), "those of the configuration")
	_, ok := c.Members().ByID(7)
	require.True(t, ok)
	eventually.True(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.fails > 5
	})
	require.Equal(t, 1, log.Count("cannot load lists and settings"), "said once, however often it is tried")
	require.Equal(t, 2, log.Count("does not reply"))
}

func TestNoTrackers(t *testing.T) {
	c, _ := newClient(t, Options{StorageIDs: []fdfs.StorageID{{ID: 7, Group: "g", Hosts: []string{"10.0.0.1"}}}})
	require.ErrorIs(t, ask(t.Context(), c), ErrUnavailable)
	require.True(t, c.Members().Known())
	c.LoadSoon()
	c, _ = newClient(t, Options{})
	require.False(t, c.Members().Known())
	require.Equal(t, Parameters{}, c.Current())
}

func TestClose(t *testing.T) {
	cluster := newCluster(t, fdfstest.Options{})
	c := New(Options{Trackers: each(cluster.Trackers()...), Log: slog.New(slog.DiscardHandler)})
	c.Close()
	c.Close()
	require.ErrorIs(t, ask(t.Context(), c), fdfs.ErrClosed)
	eventually.True(t, func() bool { return cluster.Tracker(0).Counts().Open == 0 })

	cluster.Tracker(0).SetFaults(fdfstest.Faults{Hang: true}) // so that Close comes during the first load
	cluster.Tracker(0).ResetCounts()
	c = New(Options{Trackers: each(cluster.Trackers()...), Timeout: 2 * patient, Log: slog.New(slog.DiscardHandler)})
	// The tracker may see the last request of the first client only now.
	eventually.True(t, func() bool { return cluster.Tracker(0).Counts().Requests[fdfstest.CmdListGroups] >= 1 })
	began := time.Now()
	c.Close()
	require.Less(t, time.Since(began), patient/2)
}
