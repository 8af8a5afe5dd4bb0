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
	rdb := cachelock.PatientClient(t, redistest.Shared(t))
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
		nodes = append(nodes, cachelock.PatientClient(t, redistest.Start(t)))
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
