package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// WithGateway calls run, which gives an exit code, when *binary names a gateway: where it is empty
// it is that of one built for as long as run takes. It returns the code, or 1 when the build failed
// and run was not called.
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
	_, source, _, _ := runtime.Caller(0) // tests of other modules call this too
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
