package cachelock

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// dialError is a hook of a Redis client that keeps the result of its last dial. A client dials
// again and again until the context of a request ends, and then returns the error of the context,
// which does not say why.
type dialError struct{ last atomic.Pointer[error] }

var _ redis.Hook = (*dialError)(nil)

// DialHook implements redis.Hook.
func (d *dialError) DialHook(dial redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		d.last.Store(&err)
		return conn, err
	}
}

// ProcessHook implements redis.Hook.
func (d *dialError) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (d *dialError) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// err returns the error of the last dial; nil = it succeeded, or there was none.
func (d *dialError) err() error {
	if last := d.last.Load(); last != nil {
		return *last
	}
	return nil
}
