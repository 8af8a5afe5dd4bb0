package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// binary is the gateway; without GATEWAY_BINARY the tests build one.
var binary = os.Getenv("GATEWAY_BINARY")

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bench-test-")
	if err == nil && binary == "" {
		binary = filepath.Join(dir, "gateway")
		build := exec.Command("go", "build", "-C", "../..", "-o", binary, "./cmd/gateway")
		build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot build the gateway:", err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// newTestWorld makes a world whose gateways are the built one.
func newTestWorld(t *testing.T) (*world, *settings) {
	t.Helper()
	w, err := newWorld(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.close()) })
	return w, &settings{gateway: binary, connections: 8, rounds: 1}
}
