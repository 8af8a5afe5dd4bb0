package cachelock

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lateContext is a context whose deadline has passed, but whose timer has not fired yet.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// TestDeadlineBeforeItsContext: a network operation that ends at the deadline of its context counts
// as cancelled, even if the context has no error yet. Another time-out is a failure of Redis.
func TestDeadlineBeforeItsContext(t *testing.T) {
	err := failed(lateContext{t.Context()}, "subscribe", os.ErrDeadlineExceeded)
	require.ErrorIs(t, err, ErrCancelled)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, ErrUnreachable)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	err = failed(ctx, "subscribe", os.ErrDeadlineExceeded)
	require.ErrorIs(t, err, ErrUnreachable)
	require.NotErrorIs(t, err, ErrCancelled)
}
