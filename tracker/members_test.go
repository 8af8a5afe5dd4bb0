package tracker

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/fdfs"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func infoOf(status byte, id uint32, host string, port int) fdfs.StorageInfo {
	return fdfs.StorageInfo{Status: status, ID: id, Addr: addr(host), Port: port}
}

// isKnown reports whether a storage of any group has the address.
func isKnown(m *Members, a netip.Addr) bool {
	for key := range m.load().byAddr {
		if key.addr == a.Unmap() {
			return true
		}
	}
	return false
}

func TestMembersZero(t *testing.T) {
	var m Members
	require.False(t, m.Known() || m.HasGroup("g") || isKnown(&m, addr("10.0.0.1")))
	require.Empty(t, m.StoragesOf("g"))
	_, ok := m.ByID(1)
	require.False(t, ok)
	_, ok = m.ByAddr("g", addr("10.0.0.1"))
	require.False(t, ok)
}

func TestMembers(t *testing.T) {
	var m Members
	m.set(lists{listed: true,
		groups: []group{
			{info: fdfs.GroupInfo{Name: "group1", Port: 23000}, storages: []fdfs.StorageInfo{
				infoOf(5, 100001, "10.0.0.1", 23001),
				infoOf(fdfs.StatusActive, 100002, "10.0.0.2", 0),
				infoOf(fdfs.StatusDeleted, 100009, "10.0.0.9", 23000),
				infoOf(fdfs.StatusIPChanged, 0, "10.0.0.10", 23000),
				infoOf(fdfs.StatusActive, 0, "0.0.0.0", 23000),
				{Status: fdfs.StatusActive, ID: 100008},
			}},
			{info: fdfs.GroupInfo{Name: "empty"}},
			// on the host of storage 100002
			{info: fdfs.GroupInfo{Name: "another"},
				storages: []fdfs.StorageInfo{infoOf(fdfs.StatusActive, 0, "10.0.0.2", 23009)}},
		},
		ids: []fdfs.StorageID{
			{ID: 100001, Group: "group1", Hosts: []string{"192.168.0.1", "10.0.0.1"}, Port: 23000},
			// differs from the list of the tracker, which takes precedence
			{ID: 100002, Group: "elsewhere", Hosts: []string{"10.6.6.6"}, Port: 6},
			{ID: 100003, Group: "group1", Hosts: []string{"storage-3.example", "fd00::3"}},
			{ID: 100004, Group: "group3", Hosts: []string{"::ffff:10.0.0.4"}, Port: 23004},
		}})

	first := Server{Group: "group1", ID: 100001, Host: "10.0.0.1", Others: []netip.Addr{addr("192.168.0.1")},
		Port: 23001}
	second := Server{Group: "group1", ID: 100002, Host: "10.0.0.2", Port: 23000, Active: true}
	third := Server{Group: "group1", ID: 100003, Host: "storage-3.example", Others: []netip.Addr{addr("fd00::3")},
		Port: 23000}
	fourth := Server{Group: "group3", ID: 100004, Host: "10.0.0.4", Port: 23004}
	require.True(t, m.Known())
	require.Equal(t, []Server{second, first, third}, m.StoragesOf("group1"), "the active ones first")
	require.Equal(t, []Server{fourth}, m.StoragesOf("group3"))
	for id, want := range map[uint32]Server{100001: first, 100002: second, 100003: third, 100004: fourth, 100009: {},
		100008: {}, 0: {}} {
		got, ok := m.ByID(id)
		require.Equal(t, want, got)
		require.Equal(t, want.ID != 0, ok, id)
	}
	for _, g := range []string{"group1", "empty", "another", "group3"} {
		require.True(t, m.HasGroup(g), g)
	}
	require.False(t, m.HasGroup("elsewhere") || m.HasGroup(""))

	for _, host := range []string{"10.0.0.1", "192.168.0.1", "10.0.0.2", "fd00::3", "10.0.0.4", "::ffff:10.0.0.1"} {
		require.True(t, isKnown(&m, addr(host)), host)
	}
	for _, host := range []string{"10.0.0.9", "10.0.0.10", "0.0.0.0", "10.6.6.6", "10.0.0.5", "::"} {
		require.False(t, isKnown(&m, addr(host)), host)
	}
	require.False(t, isKnown(&m, netip.Addr{}))

	got, ok := m.ByAddr("group1", addr("::ffff:192.168.0.1"))
	require.True(t, ok)
	require.Equal(t, first, got)
	got, _ = m.ByAddr("another", addr("10.0.0.2"))
	require.Equal(t, 23009, got.Port, "one host, two groups")
	_, ok = m.ByAddr("group3", addr("10.0.0.2"))
	require.False(t, ok)
}

// TestMembersOfStorageIDs: without lists of a tracker, the members are those of the storage ids.
func TestMembersOfStorageIDs(t *testing.T) {
	var m Members
	m.set(lists{ids: []fdfs.StorageID{{ID: 1, Group: "g", Hosts: []string{"10.0.0.1", "fd00::1"}, Port: 5},
		{ID: 2, Group: "g", Hosts: []string{"name"}}}})
	require.True(t, m.Known())
	require.Equal(t, []Server{
		{Group: "g", ID: 1, Host: "10.0.0.1", Others: []netip.Addr{addr("fd00::1")}, Port: 5, Active: true},
		{Group: "g", ID: 2, Host: "name", Active: true},
	}, m.StoragesOf("g"))
	require.True(t, isKnown(&m, addr("fd00::1")))
}
