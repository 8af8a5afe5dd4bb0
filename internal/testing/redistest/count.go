package redistest

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Count counts the commands that a client sends from now on.
func Count(rdb *redis.Client) *atomic.Int64 {
	c := &counter{}
	rdb.AddHook(c)
	return &c.commands
}

// counter counts the commands of a client.
type counter struct{ commands atomic.Int64 }

var _ redis.Hook = (*counter)(nil)

// DialHook leaves dialing alone.
func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts one command.
func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts several.
func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.commands.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}
