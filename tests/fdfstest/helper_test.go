package fdfstest

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds operations that normally take no time: a machine may be slow, and may stand
// still for a while.
const testTimeout = 30 * time.Second

func start(t *testing.T, o Options) *Cluster {
	t.Helper()
	c, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(testTimeout)))
	return c.(*net.TCPConn)
}

// exchange sends a request and returns the reply; empty if the connection was closed without one.
func exchange(t *testing.T, addr string, request []byte) []byte {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	_, err := c.Write(request)
	require.NoError(t, err)
	return readReply(t, c)
}

func readReply(t *testing.T, c net.Conn) []byte {
	t.Helper()
	header := make([]byte, headerLen)
	n, err := io.ReadFull(c, header)
	if err != nil {
		require.Zero(t, n)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "neither a reply nor an end")
		return nil
	}
	body := make([]byte, binary.BigEndian.Uint64(header))
	_, err = io.ReadFull(c, body)
	require.NoError(t, err)
	return append(header, body...)
}
