package command

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStartError: the error of a port that needs rights names the ways to have them.
func TestStartError(t *testing.T) {
	err := startError(&net.OpError{Op: "listen", Net: "tcp", Addr: &net.TCPAddr{Port: 80},
		Err: os.NewSyscallError("bind", syscall.EACCES)})
	require.EqualError(t, err, "cannot start: listen tcp :80: bind: permission denied; start it by the unit of "+
		"systemd, or as root with user in [gateway], or after `setcap cap_net_bind_service=+ep "+os.Args[0]+"`")
	require.ErrorIs(t, err, syscall.EACCES)
}
