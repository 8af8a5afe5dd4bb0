// Package soak runs the built gateway for a long time under mixed traffic and disturbances, and
// checks every body. It fails if a response is wrong, or if memory, descriptors or goroutines grow.
//
//	make soak            # an hour
//	make soak SOAK=20m
//
// Without -soak.for it runs for 8 seconds, as a test of the package. It writes soak.csv into the
// folder of -soak.out.
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
	binary   = lab.Binary
)

func TestMain(m *testing.M) {
	flag.Parse()
	logging.Disable() // Redis is paused on purpose
	os.Exit(lab.Main(m.Run))
}
