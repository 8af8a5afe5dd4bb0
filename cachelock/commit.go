package cachelock

import (
	"context"
	"time"

	"fastdfs-gateway/lua"

	"github.com/redis/go-redis/v9"
)

// maxFence is the highest fence that a script can compare: Lua represents integers exactly up to
// here.
const maxFence = 1<<53 - 1

var commitScript = redis.NewScript(lua.Commit)

// Commit writes a value to Redis for the holder of a lock: a hash with the fields "fence" and
// "value" that expires after ttl. It returns ErrLost if a later holder has written already; the
// same fence may write again. So a holder that was paused beyond the end of its lock cannot
// overwrite the value of its successor while that value lives: choose a ttl that is longer than any
// pause. If the Redis client repeats a request whose answer was lost, Commit may return ErrLost
// although it wrote the value before a later one. A Redlock has no fence to commit with. In a
// Cluster the key may be in any slot.
func Commit(ctx context.Context, rdb redis.UniversalClient, key string, fence int64, value []byte,
	ttl time.Duration) error {
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
