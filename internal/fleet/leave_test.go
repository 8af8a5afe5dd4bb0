package fleet

import (
	"context"
	"testing"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// TestLeave: a replaced process removes its name from the list, unless the new process has
// registered the same name.
func TestLeave(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	nothing := (&memory{}).local()
	f, other := member(t, o, 1), member(t, o, 2)
	start(t, f, nothing)
	start(t, other, nothing)
	f.HandOver(t.Context())
	next := member(t, o, 1)
	start(t, next, nothing)
	f.Leave()
	require.Equal(t, []string{f.o.Name, other.o.Name}, names(t, other))
	require.NoError(t, f.Close())
	require.Equal(t, []string{f.o.Name, other.o.Name}, names(t, other))

	next.HandOver(t.Context())
	eventually.True(t, func() bool {
		next.Leave()
		return len(names(t, other)) == 1
	}, "nobody has its name")
	require.Equal(t, []string{other.o.Name}, names(t, other))
}

// TestHandOverWhileDiskHangs: HandOver does not wait for a purge that hangs at the disk. When the
// purge ends later, the process neither confirms it nor stores its fence.
func TestHandOverWhileDiskHangs(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	f, other := member(t, o, 1), member(t, o, 2)
	goOn, hangs := make(chan struct{}), make(chan struct{})
	var m memory
	l := m.local()
	l.Purge = func(match cache.Match) {
		if match == "group1/" {
			close(hangs)
			<-goOn
		}
	}
	p := NewAppliedFile(disk(t), f.Log(), func() error { return nil })
	l.Store = p.Store
	start(t, f, l)
	start(t, other, m.local())
	confirmed := func() string {
		return redistest.Shared(t).Client().HGet(t.Context(), f.key("applied"), f.o.Name).Val()
	}
	before := confirmed()
	_, err := other.writePurge(t.Context(), "group1/")
	require.NoError(t, err)
	f.wake()
	<-hangs
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.HandOver(ctx)
	p.Close()
	number, err := p.Load()
	require.NoError(t, err)
	f.Leave()
	require.Equal(t, []string{f.o.Name, other.o.Name}, names(t, other), "its heartbeat may go on")
	close(goOn)
	<-f.loopEnded
	require.Equal(t, before, confirmed())
	after, err := p.Load()
	require.NoError(t, err)
	require.Equal(t, number, after)
	f.Leave()
	require.Equal(t, []string{other.o.Name}, names(t, other))
}

// TestOtherLog: a gateway with the fence of another log, which AppliedFile returns as 0, applies
// all purges of the log and does not change the log. If the log does not reach back to its
// beginning, the gateway purges everything.
func TestOtherLog(t *testing.T) {
	server := redistest.Shared(t)
	o := fleetOf(server.Addr())
	other := member(t, o, 1)
	first, err := other.writePurge(t.Context(), "group1/")
	require.NoError(t, err)
	_, err = other.writePurge(t.Context(), "group2/")
	require.NoError(t, err)
	for _, purged := range [][]string{{"group1/", "group2/"}, {""}} {
		var m memory
		f := member(t, o, 2)
		start(t, f, Local{Purge: m.purge, Load: func() (int64, error) { return 0, nil }})
		require.Equal(t, purged, m.take())
		require.NoError(t, f.Close())
		require.NoError(t, server.Client().Set(t.Context(), other.key("purges:base"), first.fence-1, testTimeout).Err())
	}
}
