package cachelock

import (
	"context"
	"time"

	"fastdfs-gateway/lua"

	"github.com/redis/go-redis/v9"
)

var commitScript = redis.NewScript(lua.Commit)

// Commit writes a value to Redis on behalf of the holder of a lock: it is a hash with the fields "fence" and "value" that lives
// for ttl. It is ErrLost when a later holder has written already. This is what makes a lock safe: a holder that slept past the
// end of his lock, and does not know it yet, changes nothing. In a Cluster the key may be in any slot.
func Commit(ctx context.Context, rdb redis.UniversalClient, key string, fence int64, value []byte, ttl time.Duration) error {
	if fence <= 0 || ttl < time.Millisecond {
		return invalid("a commit needs a fence and a ttl, not %d and %s", fence, ttl)
	}
	n, err := commitScript.Run(ctx, rdb, []string{key}, fence, value, millis(ttl)).Int()
	switch {
	case err != nil:
		return failed(ctx, "commit a value", err)
	case n == 0:
		return ErrLost
	}
	return nil
}
