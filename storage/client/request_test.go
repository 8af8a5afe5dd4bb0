package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTimedOut: the deadline of a connection, and the end of TCP_USER_TIMEOUT, count as
// context.DeadlineExceeded.
func TestTimedOut(t *testing.T) {
	for _, err := range []error{os.ErrDeadlineExceeded, syscall.ETIMEDOUT, context.DeadlineExceeded} {
		wrapped := timedOut(fmt.Errorf("cannot read: %w", err))
		require.ErrorIs(t, wrapped, err)
		require.ErrorIs(t, wrapped, context.DeadlineExceeded)
	}
	require.False(t, errors.Is(timedOut(io.ErrUnexpectedEOF), context.DeadlineExceeded))
	require.NoError(t, timedOut(nil))
}
