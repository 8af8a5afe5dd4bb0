package cachelock

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// run runs a script by its digest, and by its text when the server does not know it. redis.Script does the same; here nothing is
// allocated for a key or an argument, which go-redis takes as pointers too.
func run(ctx context.Context, rdb redis.UniversalClient, script *redis.Script, names []string, args ...*string) *redis.Cmd {
	all := make([]any, 0, 3+len(names)+len(args))
	all = append(all, "evalsha", digest(script), len(names))
	for i := range names {
		all = append(all, &names[i])
	}
	for _, arg := range args {
		all = append(all, arg)
	}
	cmd := redis.NewCmd(ctx, all...)
	cmd.SetFirstKeyPos(3)
	_ = rdb.Process(ctx, cmd) // cmd has it as well
	if !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return cmd
	}
	return script.Eval(ctx, rdb, names, all[3+len(names):]...)
}

// digests of scripts, as interfaces.
var digests sync.Map

func digest(script *redis.Script) any {
	sha, ok := digests.Load(script)
	if !ok {
		sha, _ = digests.LoadOrStore(script, script.Hash())
	}
	return sha
}
