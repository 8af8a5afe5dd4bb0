package app

import (
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// TestReloadBack: a reload that is taken back at once finds the address of [peer] listen free.
func TestReloadBack(t *testing.T) {
	server := redistest.Start(t)
	lines := fleetLines(t, server.Addr())
	one, other := start(t, lines...), start(t, fleetLines(t, server.Addr())...)
	f := newRemoteFile(t)
	one.costs(1, f)
	peers := one.address(forPeers)
	for _, changes := range [][]string{
		{"addresses = ", "# addresses = "}, {"advertise", "# advertise"}, {"listen = " + peers, "listen = 127.0.0.1:0"},
	} {
		one.reloads(lines, changes...)
		one.reloads(lines)
		require.Equal(t, peers, one.address(forPeers))
		one.left(true) // purges count it so long
		other.purges(newRemoteFile(t), 2)
		one.costs(0, f)
	}
	other.purges(f, 2)
	one.costs(1, f)
}

// TestReloadPassword: gateways keep what they have cached when the one Redis was given another
// password, which ends their connections, before they were.
func TestReloadPassword(t *testing.T) {
	server := redistest.Start(t)
	lines := append(fleetLines(t, server.Addr()), "[lock]", "ttl = 5s")
	one := start(t, lines...)
	kept, purged := newRemoteFile(t), newRemoteFile(t)
	one.purges(newRemoteFile(t), 1)
	one.costs(1, kept)
	one.costs(1, purged)
	c := server.Client()
	require.NoError(t, c.ConfigSet(t.Context(), "requirepass", "other").Err())
	require.NoError(t, c.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	eventually.True(t, func() bool { return !one.fleet().Stats().Up })
	one.reloads(lines, "[redis]", "[redis]\npassword = other")
	require.True(t, one.fleet().Stats().Up)
	one.left(false)
	one.costs(0, kept)
	one.purges(purged, 1)
	one.costs(1, purged)
}

// TestReloadWithoutCache: a cache that the configuration does not keep any more is used until a
// restart, and purges reach it so long.
func TestReloadWithoutCache(t *testing.T) {
	server := redistest.Start(t)
	lines := fleetLines(t, server.Addr())
	one, other := start(t, lines...), start(t, fleetLines(t, server.Addr())...)
	f := newRemoteFile(t)
	one.costs(1, f)
	require.NoError(t, one.tries(lines, "[cache]\ndisk_path", "[cache]\nmemory_max = 0\n# disk_path"))
	require.Equal(t, []string{"memory_max", "disk_path"}, one.Pending())
	one.left(true)
	one.costs(0, f)
	other.purges(f, 2)
	one.costs(1, f)
}
