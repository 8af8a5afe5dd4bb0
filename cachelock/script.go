package cachelock

import (
	"context"

	"fastdfs-gateway/lua"

	"github.com/redis/go-redis/v9"
)

// script is a script with its digest as an interface value, which no request has to allocate.
type script struct {
	*redis.Script
	digest any
}

func newScript(text string) *script {
	s := redis.NewScript(text)
	return &script{s, s.Hash()}
}

// lockScripts are the scripts of the locks.
type lockScripts struct{ acquire, release, extend, leave, reenter, reenterRelease *script }

var defaultLockScripts = &lockScripts{
	acquire:        newScript(lua.Acquire),
	release:        newScript(lua.Release),
	extend:         newScript(lua.Extend),
	leave:          newScript(lua.Leave),
	reenter:        newScript(lua.Reenter),
	reenterRelease: newScript(lua.ReenterRelease),
}

// run runs a script by its digest, or by its text if the server does not know it. Unlike
// redis.Script it allocates nothing for keys and arguments, which go-redis accepts as pointers.
func run(ctx context.Context, rdb redis.UniversalClient, s *script, names []string, args ...*string) *redis.Cmd {
	all := make([]any, 0, 3+len(names)+len(args))
	all = append(all, "evalsha", s.digest, len(names))
	for i := range names {
		all = append(all, &names[i])
	}
	for _, arg := range args {
		all = append(all, arg)
	}
	cmd := redis.NewCmd(ctx, all...)
	cmd.SetFirstKeyPos(3)
	_ = rdb.Process(ctx, cmd) // cmd has the error too
	if !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return cmd
	}
	return s.Eval(ctx, rdb, names, all[3+len(names):]...)
}
