package cache

import (
	"context"
	"io"
	"testing"
	"time"

	"fastdfs-gateway/internal/process/panics"

	"github.com/stretchr/testify/require"
)

// broken is a source with a bug.
type broken struct{ *origin }

func (broken) Name() string                                   { panic("bug") }
func (broken) NegativeTTL() time.Duration                     { panic("bug") }
func (broken) Stat(context.Context, Version) (Version, error) { panic("bug") }

func (broken) Fetch(context.Context, *Version, int64, int64) (Version, io.ReadCloser, error) {
	panic("bug")
}

// TestPanicIsAnError: a panic of a source is the error of the requests that wait for metadata or
// content, and does not end the process.
func TestPanicIsAnError(t *testing.T) {
	c := newCache(t, Options{Memory: 16 << 20})
	for _, hint := range []int64{NoHint, 0} { // a request for metadata, and one for content
		_, err := c.Get(t.Context(), "group1/file", broken{}, GetOptions{Hint: hint})
		require.ErrorIs(t, err, panics.Err)
	}
	e := Entry{File: "group1/file", Meta: Meta{Version: Version{Size: 5, Immutable: true}}}
	stream := c.Open(t.Context(), e, broken{}, 0, 5)
	_, err := stream.Next(5)
	require.ErrorIs(t, err, panics.Err)
	require.NoError(t, stream.Close())
}
