package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// WithGateway calls run and returns the exit code that run returns. If *binary is empty,
// WithGateway first builds a gateway, sets *binary to its path, and removes it after run. If the
// build fails, run is not called and the result is 1.
func WithGateway(binary *string, run func() int) int {
	if *binary != "" {
		return run()
	}
	dir, err := os.MkdirTemp("", "gateway-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "gateway")
	_, source, _, _ := runtime.Caller(0) // tests of other modules call WithGateway too
	build := exec.Command("go", "build", "-C", filepath.Dir(source), "-pgo=off", "-o", path,
		"fastdfs-gateway/cmd/gateway")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot build the gateway: %v\n%s", err, out)
		return 1
	}
	*binary = path
	return run()
}
