// Package soak runs built gateways for long under mixed traffic and disturbances, checks every
// body, and fails when an answer is wrong, or memory, descriptors or goroutines grow.
//
//	make soak            # an hour
//	make soak SOAK=20m
//
// Without -soak.for it runs for some seconds, as a test of itself. It writes soak.csv and soak.svg
// into the folder of -soak.out.
package soak

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

var (
	duration = flag.Duration("soak.for", 15*time.Second, "how long the traffic lasts")
	output   = flag.String("soak.out", "", "folder for soak.csv and soak.svg; empty = a temporary one")
	binary   = os.Getenv("GATEWAY_BINARY")
)

func TestMain(m *testing.M) {
	flag.Parse()
	logging.Disable() // Redis is paused on purpose
	if binary != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "gateway-soak-")
	if err == nil {
		binary = filepath.Join(dir, "gateway")
		build := exec.Command("go", "build", "-o", binary, "../../cmd/gateway")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
