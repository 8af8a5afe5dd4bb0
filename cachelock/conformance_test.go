package cachelock_test

import (
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/cachelock/locktest"
	"fastdfs-gateway/internal/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestConformanceLocal(t *testing.T) {
	locktest.Run(t, locktest.Implementation{
		Simulated: true,
		New: func(*testing.T) locktest.Open {
			var c *cachelock.Client
			return func(o cachelock.Options) *cachelock.Client {
				if c == nil {
					c = cachelock.NewLocal(o)
				}
				return c
			}
		},
	})
}

func TestConformanceRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	locktest.Run(t, locktest.Implementation{
		New: func(t *testing.T) locktest.Open {
			return func(o cachelock.Options) *cachelock.Client {
				o.Prefix = t.Name()
				return cachelock.New(server.Client(), o)
			}
		},
		Queued: func(t *testing.T, key string) int {
			n, err := server.Client().ZCard(t.Context(), t.Name()+":{0}:queue:"+key).Result()
			require.NoError(t, err)
			return int(n)
		},
	})
}

func TestConformanceRedlock(t *testing.T) {
	var servers []*redistest.Server
	for range 3 {
		servers = append(servers, redistest.Start(t))
	}
	locktest.Run(t, locktest.Implementation{
		NoFences:   true,
		NoFair:     true,
		Afterwards: true,
		New: func(t *testing.T) locktest.Open {
			return func(o cachelock.Options) *cachelock.Client {
				o.Prefix, o.NodeTimeout = t.Name(), 10*time.Second
				var nodes []redis.UniversalClient
				for _, s := range servers {
					nodes = append(nodes, s.Client())
				}
				return cachelock.NewRedlock(nodes, o)
			}
		},
	})
}
