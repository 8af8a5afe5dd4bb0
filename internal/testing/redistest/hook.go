package redistest

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Hook wraps each further command of a client, but no pipeline.
func Hook(rdb redis.UniversalClient, wrap func(next redis.ProcessHook) redis.ProcessHook) {
	rdb.AddHook(hook(wrap))
}

// Count returns the number of further commands of a client, which grows with each of them.
func Count(rdb redis.UniversalClient) *atomic.Int64 {
	commands := &atomic.Int64{}
	rdb.AddHook(counter{commands: commands, hook: func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			commands.Add(1)
			return next(ctx, cmd)
		}
	}})
	return commands
}

// counter counts the commands of pipelines too.
type counter struct {
	hook
	commands *atomic.Int64
}

// ProcessPipelineHook implements redis.Hook.
func (c counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.commands.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

type hook func(next redis.ProcessHook) redis.ProcessHook

var _ redis.Hook = hook(nil)

// DialHook implements redis.Hook.
func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return h(next) }

// ProcessPipelineHook implements redis.Hook.
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
