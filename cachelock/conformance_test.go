package cachelock_test

import (
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/cachelock/locktest"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestConformanceRedis(t *testing.T) {
	t.Parallel()
	conformance(t, redistest.Shared(t).Client())
}

// conformance runs the suite on a Redis of any kind.
func conformance(t *testing.T, rdb redis.UniversalClient) {
	locktest.Run(t, locktest.Implementation{
		New: func(t *testing.T) locktest.Open {
			return func(o cachelock.Options) *cachelock.Client {
				o.Prefix = t.Name()
				return cachelock.New(rdb, o)
			}
		},
		Queued: func(t *testing.T, key string) int {
			n, err := rdb.ZCard(t.Context(), t.Name()+":{0}:queue:"+key).Result()
			require.NoError(t, err)
			return int(n)
		},
	})
}

func TestConformanceRedlock(t *testing.T) {
	var nodes []redis.UniversalClient
	for range 3 {
		nodes = append(nodes, redistest.Start(t).Client())
	}
	locktest.Run(t, locktest.Implementation{
		NoFences:   true,
		NoFair:     true,
		Afterwards: true,
		New: func(t *testing.T) locktest.Open {
			return func(o cachelock.Options) *cachelock.Client {
				o.Prefix, o.NodeTimeout = t.Name(), 10*time.Second
				return cachelock.NewRedlock(nodes, o)
			}
		},
	})
}
