package gateway

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/storage/local"

	"github.com/stretchr/testify/require"
)

// TestSlotLimitStatus: a slot that was not verified because of a limit may be valid. The client
// gets a 503 with Retry-After, and no request is sent to another host.
func TestSlotLimitStatus(t *testing.T) {
	err := fmt.Errorf("opening: %w", local.ErrSlotLimit)
	require.False(t, mayBeElsewhere(err))
	r := rejectionOf(err)
	require.Equal(t, 503, r.status)
	require.Equal(t, time.Second, r.retryAfter)
	require.NoError(t, r.cause, "one line of the log for each such request")
}

// TestStatusOfErrors: each failure of another host has its status, and Retry-After if the client
// may soon try again.
func TestStatusOfErrors(t *testing.T) {
	for _, test := range []struct {
		err        error
		status     int
		retryAfter time.Duration
	}{
		{origin.ErrNotFound, 404, 0},
		{origin.ErrNotCached, 409, 0},
		{origin.ErrNotYet, 404, 5 * time.Second},
		{origin.ErrUnreachable, 502, 0},
		{origin.ErrTimeout, 504, 0},
		{origin.ErrBusy, 503, 5 * time.Second},
		{origin.ErrTooManyWaiting, 503, time.Second},
		{origin.ErrNoLists, 503, 5 * time.Second},
		{local.ErrUnavailable, 503, 5 * time.Second},
		{fdfs.ErrFileChanged, 503, time.Second},
		{fdfs.ErrNoFile, 404, 0},
		{local.ErrNoGroup, 404, 0},
		{local.ErrPathIndex, 400, 0},
		{fdfs.ErrFileID, 400, 0},
		{errors.New("a bug"), 500, 0},
	} {
		r := rejectionOf(fmt.Errorf("in a test: %w", test.err))
		require.Equal(t, test.status, r.status, "%v", test.err)
		require.Equal(t, test.retryAfter, r.retryAfter, "%v", test.err)
	}
}
