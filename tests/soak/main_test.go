// Package soak runs built gateways for long under mixed traffic and disturbances, checks every
// body, and fails when a response is wrong, or memory, descriptors or goroutines grow.
//
//	make soak            # an hour
//	make soak SOAK=20m
//
// Without -soak.for it runs for some seconds, as a test of itself. It writes soak.csv into
// the folder of -soak.out.
package soak

import (
	"flag"
	"os"
	"testing"
	"time"

	"fastdfs-gateway/tests/lab"

	"github.com/redis/go-redis/v9/logging"
)

var (
	duration = flag.Duration("soak.for", 8*time.Second, "how long the traffic lasts")
	output   = flag.String("soak.out", "", "folder for soak.csv; empty = a temporary one")
	binary   = os.Getenv("GATEWAY_BINARY")
)

func TestMain(m *testing.M) {
	flag.Parse()
	logging.Disable() // Redis is paused on purpose
	os.Exit(lab.WithGateway(&binary, m.Run))
}
