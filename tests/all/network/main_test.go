// Package network runs gateways, Redis and storages on separate hosts, between which packets are
// lost, late and out of order.
//
// A host is a network namespace with one interface, a TUN device. The test process has the other
// end of each device: a goroutine reads the packets of a host, and writes them to their destination
// or drops them. So the tests need root, but not netem, which many kernels lack.
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

var binary = lab.Binary

// insideVariable is set in the process that runs in the new network namespace.
const insideVariable = "NETWORK_TEST_INSIDE"

// missing is the reason why the tests cannot run.
var missing error

// TestMain runs the tests in a new network namespace, so the process is one of the hosts.
func TestMain(m *testing.M) {
	if os.Getenv(insideVariable) != "" {
		logging.Disable()
		os.Exit(lab.Main(m.Run))
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
