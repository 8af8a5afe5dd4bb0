package gateway

import (
	"fmt"
	"testing"
	"time"

	"fastdfs-gateway/storage/local"

	"github.com/stretchr/testify/require"
)

// A slot that was not checked may be in order: the client asks again, and no other host is asked.
func TestSlotLimitStatus(t *testing.T) {
	err := fmt.Errorf("opening: %w", local.ErrSlotLimit)
	require.False(t, mayBeElsewhere(err))
	r := rejectionOf(err)
	require.Equal(t, 503, r.status)
	require.Equal(t, time.Second, r.retryAfter)
	require.NoError(t, r.cause, "one line of the log for each such request")
}
