// Package network runs gateways, Redis and storages on hosts of their own, between which packets
// are lost, late and out of order.
//
// A host is a network namespace with one interface, a TUN device. The other end of each device is
// here: a goroutine reads the packets of a host and writes them to the host that they are for, or
// does not. So it needs root, and no other support of the kernel (many have no netem).
package network

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"fastdfs-gateway/tests/lab"

	"github.com/redis/go-redis/v9/logging"
)

var binary = os.Getenv("GATEWAY_BINARY")

// insideVariable says that the process is in a network namespace of its own.
const insideVariable = "NETWORK_TEST_INSIDE"

// missing is why the tests cannot run.
var missing error

// TestMain runs the tests in a new network namespace: the process is one of the hosts.
func TestMain(m *testing.M) {
	if os.Getenv(insideVariable) != "" {
		logging.Disable()
		os.Exit(lab.WithGateway(&binary, m.Run))
	}
	runtime.LockOSThread() // the child dies with the thread
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Start()
	if err == nil {
		err = cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
	}
	if err != nil {
		missing = fmt.Errorf("cannot make a network namespace: %w", err)
		os.Exit(m.Run())
	}
}
