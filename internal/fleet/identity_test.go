package fleet

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// TestAutoListen: a gateway is registered under the address from which it reaches Redis, and after
// a change of that address under the new one. The former name expires.
func TestAutoListen(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	o.AutoListen = "[::]:8887"
	f := gatewayOf(t, o)
	_, _, err := f.AcquireLease(t.Context(), "key", true)
	require.ErrorIs(t, err, cache.ErrFleetDown, "its address is not known yet")
	require.Equal(t, unknownName, f.Name())
	start(t, f, (&memory{}).local())
	require.Equal(t, "https://127.0.0.1:8887", f.Name())
	require.Equal(t, f.self.Load().record(), f.self.Load().holder)
	lead(t, f, "key").release()

	f.address.mu.Lock()
	f.address.address = netip.MustParseAddr("127.0.0.2")
	f.address.mu.Unlock()
	eventually.True(t, func() bool {
		f.wake()
		list, _, err := f.registered(t.Context())
		return err == nil && len(list) == 2 && list[1].Name == "https://127.0.0.2:8887"
	}, "it is registered under the new address")
	require.True(t, f.members.Load().Has("https://127.0.0.2:8887"))
}

// TestAutoWithoutRedis: a gateway that has not reached Redis yet has no URL, and the error has the
// reason.
func TestAutoWithoutRedis(t *testing.T) {
	o := fleetOf("127.0.0.1:1")
	o.AutoListen, o.Timeout = ":8887", time.Second
	f := gatewayOf(t, o)
	_, err := f.exchange(t.Context())
	require.ErrorContains(t, err, "cannot find the address towards redis")
	require.Empty(t, f.Owners("key", 1))
	f.address.note(&connFrom{local: &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}})
	require.False(t, f.address.get().IsValid(), "another host has no such interface")
}

// connFrom is a connection with a local address.
type connFrom struct {
	net.Conn
	local net.Addr
}

func (c *connFrom) LocalAddr() net.Addr { return c.local }

// TestOwnAddress: the address of this host is the local address of the first connection to Redis. A
// later one replaces it if only the earlier one is loopback, or if the host does not have it any
// more.
func TestOwnAddress(t *testing.T) {
	const gone = "192.0.2.77" // no host has it
	for _, c := range []struct {
		name string
		from []string
		want string
	}{
		{"first", []string{"10.0.0.1"}, "10.0.0.1"},
		{"IPv4 in IPv6", []string{"::ffff:10.0.0.1"}, "10.0.0.1"},
		{"loopback", []string{"127.0.0.1"}, "127.0.0.1"},
		{"loopback, then another one", []string{"127.0.0.1", "10.0.0.1"}, "10.0.0.1"},
		{"IPv6", []string{"fd00::5"}, "fd00::5"},
		{"one that is gone", []string{gone, "10.0.0.2"}, "10.0.0.2"},
		{"two loopback addresses", []string{"127.0.0.1", "::1"}, "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a ownAddress
			for _, from := range c.from {
				a.note(&connFrom{local: &net.TCPAddr{IP: net.ParseIP(from), Port: 1}})
			}
			require.Equal(t, c.want, a.get().String())
		})
	}
	require.Equal(t, "https://[fd00::5]:8887", AutoURL(netip.MustParseAddr("fd00::5"), ":8887"))
}

// TestAutoAddress: IsUnreachable and IsUnserved report the addresses that do not lead other
// gateways to the listener.
func TestAutoAddress(t *testing.T) {
	for _, c := range []struct{ address, listen, want string }{
		{"10.0.0.1", ":8887", ""},
		{"10.0.0.1", "0.0.0.0:8887", ""},
		{"10.0.0.1", "[::]:8887", ""},
		{"10.0.0.1", "10.0.0.1:8887", ""},
		{"10.0.0.1", "gateway-1:8887", ""}, // not looked up
		{"fd00::5", "[::]:8887", ""},
		{"127.0.0.1", "127.0.0.1:8887", ""},
		{"::1", "localhost:8887", ""},
		{"::1", ":8887", "loopback"},
		{"127.0.0.1", "10.0.0.1:8887", "loopback"},
		{"10.0.0.1", "10.0.0.2:8887", "unserved"},
		{"10.0.0.1", "127.0.0.1:8887", "unserved"},
		{"fd00::5", "0.0.0.0:8887", "unserved"},
	} {
		address := netip.MustParseAddr(c.address)
		require.Equal(t, c.want == "loopback", IsUnreachable(address, c.listen), c)
		require.Equal(t, c.want == "unserved", IsUnserved(address, c.listen), c)
	}
}

// TestPurgeWhileTheAddressChanges: a purge waits for the former name of a gateway whose address
// changes meanwhile: it is no success, and names that.
func TestPurgeWhileTheAddressChanges(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	o.AutoListen = ":8887"
	f := gatewayOf(t, o)
	var atPurge []string
	f.local.Store(&Local{Purge: func(cache.Match) { atPurge = names(t, f) }})
	require.NoError(t, f.sync(t.Context()))
	require.Equal(t, []string{"https://127.0.0.1:8887"}, names(t, f))
	written, err := f.writePurge(t.Context(), "group1/M00")
	require.NoError(t, err)
	require.Equal(t, names(t, f), written.registered)

	f.address.address = netip.MustParseAddr("127.0.0.2")
	require.NoError(t, f.sync(t.Context()))
	require.ElementsMatch(t, []string{"https://127.0.0.1:8887", "https://127.0.0.2:8887"}, atPurge)
	require.Equal(t, atPurge, names(t, f))
}

// names returns the names of the registered gateways.
func names(t *testing.T, f *Fleet) (names []string) {
	t.Helper()
	list, _, err := f.registered(t.Context())
	require.NoError(t, err)
	for _, g := range list {
		names = append(names, g.Name)
	}
	return names
}

// TestTwins: two gateways with one name log a warning; a single gateway does not, also after a
// restart.
func TestTwins(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	var log bytes.Buffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	a, b := member(t, o, 1), member(t, o, 1)
	beat := func(f *Fleet) {
		began := time.Now().UnixMilli()
		eventually.True(t, func() bool { return time.Now().UnixMilli() != began }, "each at a time of its own")
		require.NoError(t, f.sync(t.Context()))
	}
	for range 2 * twinTimes {
		beat(a)
	}
	beat(b) // as after a restart
	require.NotContains(t, log.String(), "has the name of this one")
	for range twinTimes {
		beat(a)
		beat(b)
	}
	require.Contains(t, log.String(), "has the name of this one")
}

// TestSetSecret: after a change of the secret, gateways with the old one are not trusted, also on
// open connections, and gateways with the new one are peers.
func TestSetSecret(t *testing.T) {
	body := make([]byte, testVersion.Size)
	o := fleetOf(redistest.Shared(t).Addr())
	b := serveAs(t, o, gives(testVersion, func(context.Context, cache.PeerRequest) io.Reader {
		return bytes.NewReader(body)
	}))
	a := member(t, o, 1)
	ask := func() error {
		a.lives.ofPeer(b.o.Advertise).noteReply()
		_, stream, err := a.Open(t.Context(), b.o.Advertise, cache.PeerRequest{Key: testKey})
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, stream)
		require.NoError(t, stream.Close())
		return err
	}
	require.NoError(t, ask())
	require.ErrorContains(t, a.SetSecret("short"), "5 bytes")
	require.NoError(t, b.SetSecret(otherSecret))
	require.ErrorIs(t, ask(), cache.ErrNotHere, "on the open connection")
	require.Error(t, ask())
	require.NoError(t, a.SetSecret(otherSecret))
	require.NoError(t, ask())
	require.Equal(t, a.self.Load().records, b.self.Load().records)
	require.NoError(t, a.SetSecret(o.Secret))
	require.Error(t, ask())
}
