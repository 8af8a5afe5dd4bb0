package cachelock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// CommitText is the example of docs/locks.md.
const CommitText = `
local seen = redis.call('HGET', KEYS[1], 'fence')
if seen and tonumber(seen) > tonumber(ARGV[1]) then
	return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
`

var commitScript = redis.NewScript(CommitText)

// Commit writes a value that a lock protects, in the way that docs/locks.md recommends: a hash with
// the fields "fence" and "value" that expires after ttl. It returns ErrLost if a later holder has
// written already.
func Commit(ctx context.Context, rdb redis.UniversalClient, key string, fence int64, value []byte,
	ttl time.Duration) error {
	n, err := commitScript.Run(ctx, rdb, []string{key}, fence, value, millis(ttl)).Int()
	return holdError(ctx, "commit a value", n == 1, err)
}
