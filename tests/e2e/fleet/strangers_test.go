package fleet

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
)

// TestStrangersAtThePeerListener: while clients that do not know the secret send odd bytes to the
// listener for peers, leave in the middle of a message, or hold many connections, gateways read
// from each other: a file is downloaded once. The gateway keeps no memory for them.
func TestStrangersAtThePeerListener(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Storages: 1})
	f.Met()
	owner := f.Gateways[0]
	address := lab.Address(owner.Options.Peers)
	send := func(text string) net.Conn {
		c, err := net.DialTimeout("tcp", address, e2e.Timeout)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, text) // fails if the gateway has closed the connection
		return c
	}
	odd := []string{
		"", "\x00", "\x16", "\x16\x03\x01", // nothing, and parts of the head of a record of TLS
		"\x16\x03\x01\xff\xff\x01\xff\xff\xff", "\x17\x03\x03\x40\x00" + strings.Repeat("x", 1<<14), // too long ones
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\xff\xff\xff\x04\x00",
		string(e2e.RandomContent(100_000)),
	}
	before := e2e.MemoryOf(t, owner.PID(), "VmRSS")
	for range 40 {
		for _, text := range odd {
			send(text) // and left open
			require.NoError(t, send(text).Close())
		}
	}
	for _, config := range []*tls.Config{
		{InsecureSkipVerify: true}, {InsecureSkipVerify: true, NextProtos: []string{"h2"}},
		{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12},
	} {
		c := tls.Client(send(""), config)
		require.NoError(t, c.SetDeadline(time.Now().Add(e2e.Timeout)))
		if err := c.Handshake(); err == nil { // by TLS 1.3 the client's part may be rejected later
			_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
			_, err = io.Copy(io.Discard, c)
			require.Error(t, err)
		}
	}
	id, content := f.PutOwnedBy(1<<20, owner)
	require.NoError(t, f.Punctually(func() error {
		e2e.RequireWhole(t, f.Stampede(20, id, content))
		return nil
	}))
	require.Equal(t, 1, f.Cluster.Downloads(id).Downloads)
	eventually.True(t, func() bool { return e2e.MemoryOf(t, owner.PID(), "VmRSS") < before+32<<10 })
	require.NotContains(t, owner.Log(), "BUG")
}
