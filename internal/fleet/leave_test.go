package fleet

import (
	"context"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// registeredNames are the names of the gateways, as one of them sees them.
func registeredNames(t *testing.T, f *Fleet) (names []string) {
	t.Helper()
	list, err := f.registered(t.Context())
	require.NoError(t, err)
	for _, g := range list {
		names = append(names, g.Name)
	}
	return names
}

// TestRetire: a gateway that leaves is no member, applies purges, and leaves its name to another
// one.
func TestRetire(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	var m memory
	f, other := member(t, o, 1), member(t, o, 2)
	start(t, f, m.withDisk())
	start(t, other, Local{Purge: func(cache.Match) {}})
	var number int64
	eventually.True(t, func() (noted bool) { number, noted = m.number(); return noted }) // once the log was read
	applied, ok := f.Retire()
	require.True(t, ok)
	require.Equal(t, f.applied.Load(), applied)
	require.Equal(t, []string{f.o.Name + leaving, other.o.Name}, registeredNames(t, other))
	require.True(t, other.catchUp(t.Context(), testTimeout,
		func() bool { return !other.members.Load().Has(f.o.Advertise) }))
	m.take()
	gateways, missing, err := other.Purge(t.Context(), "group1/")
	require.NoError(t, err)
	require.Empty(t, missing)
	require.Equal(t, 2, gateways)
	require.Equal(t, []string{"group1/"}, m.take())
	last, _ := m.number()
	require.Equal(t, number, last, "the number is the next one's")

	next := member(t, o, 1)
	start(t, next, Local{Purge: m.purge, Load: func() (int64, error) { return applied, nil }, Moved: true})
	require.Equal(t, f.applied.Load(), next.applied.Load())
	require.NoError(t, f.Leave(t.Context(), false))
	require.Equal(t, []string{next.o.Name, other.o.Name}, registeredNames(t, other))
}

// TestLeaveAppliesLast: what was purged until a gateway leaves the list is applied; it waits for
// leases that are held, and not longer than it is to.
func TestLeaveAppliesLast(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	var m memory
	f, other := member(t, o, 1), member(t, o, 2) // without a heartbeat
	setLocal(f, m.local())
	require.NoError(t, f.sync(t.Context()))
	m.take()
	lease := lead(t, f, "group1/M00/00/00/a")
	f.retired.Store(true)
	fence, _, err := other.writePurge(t.Context(), "group1/")
	require.NoError(t, err)
	gone, err := f.unregister(t.Context(), f.name(), f.applied.Load())
	require.NoError(t, err)
	require.False(t, gone, "there is a purge to apply")
	left := make(chan error, 1)
	go func() { left <- f.Leave(context.Background(), false) }()
	select {
	case <-left:
		t.Fatal("a lease is held")
	case <-time.After(50 * time.Millisecond):
	}
	lease.release()
	require.NoError(t, <-left)
	require.Equal(t, []string{"group1/"}, m.take())
	require.Equal(t, fence, f.applied.Load())
	require.NotContains(t, registeredNames(t, other), f.o.Name+leaving)
	_, _, err = f.AcquireLease(t.Context(), "group1/M00/00/00/a")
	require.ErrorIs(t, err, cache.ErrFleetDown)
	_, _, err = f.Purge(t.Context(), "group1/")
	require.ErrorIs(t, err, cache.ErrFleetDown)
}

// TestMoved: behind a purge of another log, all of a log is applied, or everything where it does
// not reach back to its beginning; behind one of its own, what came later.
func TestMoved(t *testing.T) {
	server := redistest.Shared(t)
	o := fleetOf(server.Addr())
	var m memory
	other := member(t, o, 1)
	first, _, err := other.writePurge(t.Context(), "group1/")
	require.NoError(t, err)
	_, _, err = other.writePurge(t.Context(), "group2/")
	require.NoError(t, err)
	for _, tt := range []struct {
		name   string
		last   int64
		base   bool
		purged []string
	}{
		{"none", 0, false, []string{"group1/", "group2/"}},
		{"of another log", first + 1, false, []string{"group1/", "group2/"}},
		{"of this log", first, false, []string{"group2/"}},
		{"of another log, and this one is cut", first + 1, true, []string{""}},
		{"of this log, which is cut", first, true, []string{"group2/"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.base {
				require.NoError(t, server.Client().Set(t.Context(), other.key("purges:base"), first-1, time.Hour).Err())
			}
			f := member(t, o, 2)
			start(t, f, Local{Purge: m.purge, Load: func() (int64, error) { return tt.last, nil }, Moved: true})
			require.Equal(t, tt.purged, m.take())
			require.NoError(t, f.Close())
		})
	}
}

// TestMovedAnswersNoPeer: until the log was read, a number of another log is not taken for one of
// this log by a peer that knows of a purge.
func TestMovedAnswersNoPeer(t *testing.T) {
	server := redistest.Start(t)
	o := fleetOf(server.Addr())
	fence, _, err := member(t, o, 1).writePurge(t.Context(), "group1/")
	require.NoError(t, err)
	f := member(t, o, 2)
	server.Pause()
	require.NoError(t, f.Start(Local{Purge: func(cache.Match) {}, Moved: true,
		Load: func() (int64, error) { return fence + 1, nil }}))
	require.ErrorIs(t, f.waitFor(t.Context(), fence), cache.ErrNotHere)
	server.Resume()
	ready(t, f)
	require.NoError(t, f.waitFor(t.Context(), fence))
}
