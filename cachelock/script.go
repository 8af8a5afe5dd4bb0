package cachelock

import (
	"context"

	"fastdfs-gateway/lua"

	"github.com/redis/go-redis/v9"
)

// script is a script with its digest. The digest is an interface value already, so no request
// allocates one.
type script struct {
	*redis.Script
	digest any
}

func newScript(text string) *script {
	s := redis.NewScript(text)
	return &script{s, s.Hash()}
}

// The scripts of the locks.
var (
	acquireScript        = newScript(lua.Acquire)
	releaseScript        = newScript(lua.Release)
	extendScript         = newScript(lua.Extend)
	leaveScript          = newScript(lua.Leave)
	reenterScript        = newScript(lua.Reenter)
	reenterReleaseScript = newScript(lua.ReenterRelease)
)

// run runs a script by its digest, or by its text if the server has not cached the script. Unlike
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
