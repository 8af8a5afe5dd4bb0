package httpserver

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestWaits(t *testing.T) {
	w := newWaits(8)
	for range 4 {
		require.True(t, w.addWait("a"))
	}
	require.False(t, w.addWait("a"), "half of all for one source")
	require.True(t, w.addWait("b"))
	require.True(t, w.addWait("b"))
	require.False(t, w.addWait("c"), "a quarter is left for others")
	w.remove("a")
	require.True(t, w.addWait("c"))
	for range 3 {
		w.remove("a")
	}
	require.NotContains(t, w.bySource, "a")
}

// TestWaitsOwnNames: a name in the list is a copy, since the name of a source may be a part of a
// request whose bytes are reused while other requests wait for the same source.
func TestWaitsOwnNames(t *testing.T) {
	w := newWaits(8)
	name := []byte("group1")
	require.True(t, w.addWait("group1"))
	require.True(t, w.addWait(unsafe.String(&name[0], len(name))))
	w.remove(unsafe.String(&name[0], len(name)))
	copy(name, "group2")
	w.remove("group1")
	require.Empty(t, w.bySource)
}
