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
