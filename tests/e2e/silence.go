package e2e

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Silence listens on a port of each address, 0 for a free port, and never replies: the kernel
// accepts connections, up to its backlog.
func Silence(t *testing.T, port int, hosts ...string) int {
	t.Helper()
	for _, host := range hosts {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = ln.Close() })
		port = ln.Addr().(*net.TCPAddr).Port
	}
	return port
}
