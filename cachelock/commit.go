package cachelock

import (
	"context"
	"time"

	"fastdfs-gateway/lua"

	"github.com/redis/go-redis/v9"
)

// maxFence is the highest fence that the scripts can compare: a number of Lua is exact up to there.
const maxFence = 1<<53 - 1

var commitScript = redis.NewScript(lua.Commit)

// Commit writes a value to Redis on behalf of the holder of a lock: it is a hash with the fields "fence" and "value" that lives
// for ttl. It is ErrLost when a later holder has written already; the same fence may write again. This is what makes a lock safe:
// a holder that slept past the end of his lock, and does not know it yet, changes nothing, as long as his successor's value lives:
// give it a ttl that outlasts any pause. When the Redis client repeats a request whose answer was lost, ErrLost may be the answer
// though the value was written first, and then a later one. A Redlock has no fence to commit with. In a Cluster the key may be in
// any slot.
func Commit(ctx context.Context, rdb redis.UniversalClient, key string, fence int64, value []byte, ttl time.Duration) error {
	switch {
	case fence <= 0 || fence > maxFence || ttl < time.Millisecond:
		return invalid("a commit needs a fence and a ttl, not %d and %s", fence, ttl)
	case ctx.Err() != nil:
		return cancelled(ctx)
	}
	if err := checkKeys([]string{key}); err != nil {
		return err
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
