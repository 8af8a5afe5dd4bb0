package fleet

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs/backoff"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// TestAutoListen: a gateway is registered under the address from which it reaches Redis, and under
// another one when that has changed.
func TestAutoListen(t *testing.T) {
	o := fleetOf(redistest.Shared(t).Addr())
	o.AutoListen = "[::]:8887"
	f, err := New(o)
	require.NoError(t, err)
	defer f.Close()
	unhurried(f)
	_, _, err = f.AcquireLease(t.Context(), "key")
	require.ErrorIs(t, err, cache.ErrFleetDown, "its address is not known yet")
	require.Equal(t, unknownName, f.Name())
	start(t, f, (&memory{}).local())
	require.Equal(t, "https://127.0.0.1:8887", f.Name())
	require.Equal(t, f.self.Load().record(), f.self.Load().holder)
	lead(t, f, "key").release()

	f.address.mu.Lock()
	f.address.address = netip.MustParseAddr("10.0.0.9")
	f.address.mu.Unlock()
	eventually.True(t, func() bool {
		f.wake()
		list, err := f.registered(t.Context())
		return err == nil && len(list) == 1 && list[0].Name == "https://10.0.0.9:8887"
	}, "it is registered under the new address, and not under the old one")
	require.True(t, f.members.Load().Has("https://10.0.0.9:8887"))
}

// TestAutoWithoutRedis: a gateway that has not reached Redis yet has no URL, and is told why.
func TestAutoWithoutRedis(t *testing.T) {
	o := fleetOf("127.0.0.1:1")
	o.AutoListen, o.Timeout = ":8887", time.Second
	f, err := New(o)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.exchange(t.Context())
	require.ErrorContains(t, err, "cannot find the address towards redis")
	require.Empty(t, f.Owners("key", 1))
	f.address.note(&connFrom{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}})
	require.False(t, f.address.get().IsValid(), "another host has no such interface")
}

// connFrom is a connection from an address.
type connFrom struct{ local net.Addr }

func (c *connFrom) Read([]byte) (int, error)         { return 0, io.EOF }
func (c *connFrom) Write([]byte) (int, error)        { return 0, io.EOF }
func (c *connFrom) Close() error                     { return nil }
func (c *connFrom) LocalAddr() net.Addr              { return c.local }
func (c *connFrom) RemoteAddr() net.Addr             { return c.local }
func (c *connFrom) SetDeadline(time.Time) error      { return nil }
func (c *connFrom) SetReadDeadline(time.Time) error  { return nil }
func (c *connFrom) SetWriteDeadline(time.Time) error { return nil }

// TestOwnAddress: which of the connections to Redis tell the address of this host.
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
				a.note(&connFrom{&net.TCPAddr{IP: net.ParseIP(from), Port: 1}})
			}
			require.Equal(t, c.want, a.get().String())
		})
	}
	require.Equal(t, "https://[fd00::5]:8887", AutoURL(netip.MustParseAddr("fd00::5"), ":8887"))
	require.True(t, IsUnreachable(netip.MustParseAddr("::1"), ":8887"))
	require.False(t, IsUnreachable(netip.MustParseAddr("127.0.0.1"), "127.0.0.1:8887"))
	require.False(t, IsUnreachable(netip.MustParseAddr("10.0.0.1"), ":8887"))
}

// TestSetSecret: from a change of the secret on, gateways with the old one are strangers, on
// connections that are open as well, and those with the new one are peers.
func TestSetSecret(t *testing.T) {
	const next = "the next secret of a test"
	body := make([]byte, testVersion.Size)
	o := fleetOf(redistest.Shared(t).Addr())
	b := serveAs(t, o, gives(testVersion, func(context.Context, cache.PeerRequest) io.Reader {
		return bytes.NewReader(body)
	}))
	a := member(t, o, 1)
	ask := func() error {
		a.backoff = backoff.NewSet[string](peerBackoff, maxPeers)
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
	require.NoError(t, b.SetSecret(next))
	require.ErrorIs(t, ask(), cache.ErrNotHere, "on the open connection")
	require.Error(t, ask())
	require.NoError(t, a.SetSecret(next))
	require.NoError(t, ask())
	require.Equal(t, a.self.Load().records, b.self.Load().records)
	require.NoError(t, a.SetSecret(o.Secret))
	require.Error(t, ask())
}
