package cachelock

import (
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
)

// PatientClient returns a client of a server, which is closed when the test ends. Where a machine
// stands still for a while, it does not give up a request and send it again: whether that is right
// is not what these tests are about.
func PatientClient(t testing.TB, s *redistest.Server) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), DialerRetries: 1, ReadTimeout: time.Minute,
		DialTimeout: time.Minute})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// BePatient makes all clients wait for the confirmation of a subscription for as long as for
// anything else: see PatientClient.
func BePatient() { subscribeTimeout = time.Minute }
