package locktest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fastdfs-gateway/cachelock"

	"github.com/stretchr/testify/require"
)

type thumbnail struct {
	File  string
	Width int
}

// testGuard: a guarded function runs under the lock that the key template names for its argument.
// The call returns the result and the error of the function.
func testGuard(s *suite) {
	c := s.client()
	calls := 0
	fn, err := cachelock.Guard(c, s.key+":{{.File}}:{{.Width}}", cachelock.LockOptions{},
		func(ctx context.Context, t thumbnail) (string, error) {
			calls++
			lock := cachelock.LockFrom(ctx)
			require.Equal(s, fmt.Sprintf("%s:%s:%d", s.key, t.File, t.Width), lock.Key())
			require.NotEmpty(s, lock.Token())
			_, err := c.Acquire(ctx, fmt.Sprintf("%s:%s:%d", s.key, t.File, t.Width), cachelock.LockOptions{})
			require.ErrorIs(s, err, cachelock.ErrHeld)
			_, other := c.Acquire(ctx, s.key+":a:101", cachelock.LockOptions{})
			require.NoError(s, other)
			return "done", errors.New("its own error")
		})
	require.NoError(s, err)
	require.Nil(s, cachelock.LockFrom(s.ctx))
	result, err := fn(s.ctx, thumbnail{"a", 100})
	require.Equal(s, "done", result)
	require.EqualError(s, err, "its own error")

	s.key += ":b:1"
	lock := s.acquire(c, cachelock.LockOptions{})
	_, err = fn(s.ctx, thumbnail{"b", 1})
	require.ErrorIs(s, err, cachelock.ErrHeld)
	require.Equal(s, 1, calls)
	s.releaseLock(lock)
}

// testGuardLost: if the lock is lost, the context of the function ends, and the call returns
// ErrLost. A call with a cancelled context returns context.Canceled.
func testGuardLost(s *suite) {
	o := cachelock.LockOptions{TTL: short, Policy: cachelock.WaitFor(soon)}
	fn, err := cachelock.Guard(s.client(), s.key+"{{.}}", o,
		func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			return 7, context.Cause(ctx)
		})
	require.NoError(s, err)
	asked := time.Now()
	result, err := fn(s.ctx, 1)
	for s.late(err, asked) {
		asked = time.Now()
		result, err = fn(s.ctx, 1)
	}
	require.Equal(s, 7, result)
	require.ErrorIs(s, err, cachelock.ErrLost)

	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err = fn(ctx, 1)
	require.ErrorIs(s, err, context.Canceled)
}

// testGuardPanics: the lock is released even if the function panics and the caller's context has
// ended.
func testGuardPanics(s *suite) {
	c := s.client()
	ctx, cancel := context.WithCancel(s.ctx)
	fn, err := cachelock.Guard(c, s.key+"{{.}}", cachelock.LockOptions{}, func(context.Context, int) (int, error) {
		cancel()
		panic("of the function")
	})
	require.NoError(s, err)
	s.key += "1"
	require.PanicsWithValue(s, "of the function", func() { _, _ = fn(ctx, 1) })
	s.free(c)
}

// testGuardKeyTemplates: Guard rejects a template that cannot be parsed or has no action. A call
// rejects an argument that lacks a field of the template.
func testGuardKeyTemplates(s *suite) {
	c := s.client()
	nothing := func(context.Context, map[string]string) (int, error) { return 1, nil }
	for _, key := range []string{"{{.a", "", "thumbnail", "thumbnail{{/* a */}}"} {
		_, err := cachelock.Guard(c, key, cachelock.LockOptions{}, nothing)
		require.ErrorIs(s, err, cachelock.ErrInvalid, "%q", key)
	}
	fn, err := cachelock.Guard(c, s.key+"{{.a}}", cachelock.LockOptions{}, nothing)
	require.NoError(s, err)
	_, err = fn(s.ctx, map[string]string{"b": "1"})
	require.ErrorIs(s, err, cachelock.ErrInvalid)
	_, err = fn(s.ctx, map[string]string{"a": "1"})
	require.NoError(s, err)
}
