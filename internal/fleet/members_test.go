package fleet

import (
	"fmt"
	"slices"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

func namesOf(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("https://10.0.0.%d:8887", i))
	}
	return names
}

const rankKeys = 5000

func rankKey(i int) string {
	return fmt.Sprintf("group1/M00/%02X/%02X/wKgABF5xyzmAAAAAAAAAAAAAAAA%05d.jpg#0", i%256, i/256%256, i)
}

func TestRankSpreadsKeys(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8} {
		members, owned := NewMembers(namesOf(n)), map[string]int{}
		for i := range rankKeys {
			owned[members.Rank(rankKey(i), 1)[0]]++
		}
		require.Len(t, owned, n)
		for name, keys := range owned {
			require.InDelta(t, float64(rankKeys)/float64(n), float64(keys), 0.12*float64(rankKeys)/float64(n), name)
		}
	}
}

// TestRankMovesFewKeys: a member that joins takes its keys from all others, and the keys of a
// member that leaves go to the next in rank. No other key changes its owner.
func TestRankMovesFewKeys(t *testing.T) {
	eight, nine := NewMembers(namesOf(8)), NewMembers(namesOf(9))
	joined, moved := namesOf(9)[8], 0
	for i := range rankKeys {
		key := rankKey(i)
		before, after := eight.Rank(key, 8), nine.Rank(key, 9)
		if after[0] != before[0] {
			moved++
			require.Equal(t, joined, after[0])
		}
		require.Equal(t, before, slices.DeleteFunc(after, func(name string) bool { return name == joined }))
	}
	require.InDelta(t, rankKeys/9, moved, 0.12*rankKeys/9)
}

func TestRankIgnoresOrderAndRepeats(t *testing.T) {
	names := namesOf(5)
	want := NewMembers(names).Rank(rankKey(1), 5)
	slices.Reverse(names)
	require.Equal(t, want, NewMembers(append(names, names...)).Rank(rankKey(1), 5))
	require.Equal(t, want[:2], NewMembers(names).Rank(rankKey(1), 2))
	require.Equal(t, want, NewMembers(names).Rank(rankKey(1), 9))
	require.Empty(t, Members{}.Rank(rankKey(1), 2))
	require.Empty(t, NewMembers(names).Rank(rankKey(1), 0))
}

// TestMembersStayWithoutRedis: without Redis a gateway keeps the last list of members.
func TestMembersStayWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	o := fleetOf(server.Addr())
	f := member(t, o, 1)
	start(t, f, (&memory{}).local())
	start(t, member(t, o, 2), (&memory{}).local())
	ranked := func() int {
		f.wake()
		return len(f.Rank("key", 2))
	}
	eventually.True(t, func() bool { return ranked() == 2 }, "both are members")
	server.Kill()
	for range 2 { // reads of the list that fail
		failed := f.logRead.Load().next
		f.wake()
		<-failed
	}
	require.Equal(t, 2, ranked())
}

// TestTellAfterHandOver: after HandOver, the replaced process does not overwrite the announcement
// of the new one.
func TestTellAfterHandOver(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	old, next := member(t, o, 1), member(t, o, 1)
	start(t, old, (&memory{}).local())
	require.NoError(t, old.Publish(t.Context(), "old"))
	old.HandOver(t.Context())
	start(t, next, (&memory{}).local())
	require.NoError(t, next.Publish(t.Context(), "next"))
	require.NoError(t, old.Publish(t.Context(), "old"))
	list, err := next.Gateways(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "next", list[0].Announcement)
}
