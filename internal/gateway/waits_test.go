package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWaits(t *testing.T) {
	w := newWaits(8)
	for range 4 {
		require.True(t, w.enter("a"))
	}
	require.False(t, w.enter("a"), "half of all for one source")
	require.True(t, w.enter("b"))
	require.True(t, w.enter("b"))
	require.False(t, w.enter("c"), "a quarter is left for others")
	w.leave("a")
	require.True(t, w.enter("c"))
	for range 3 {
		w.leave("a")
	}
	require.NotContains(t, w.of, "a")
}

// TestWaitsOwnNames: the name of a source may be a part of a request whose bytes are used again
// while others wait for the same source.
func TestWaitsOwnNames(t *testing.T) {
	w := newWaits(8)
	name := []byte("group1")
	require.True(t, w.enter("group1"))
	require.True(t, w.enter(bytesString(name)))
	w.leave(bytesString(name))
	copy(name, "group2")
	w.leave("group1")
	require.Empty(t, w.of)
}
