package cache

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadWhileCorruptIsPurged: who begins to read a file when its content has been found wrong,
// and is not purged yet, does not get that as a whole file.
func TestReadWhileCorruptIsPurged(t *testing.T) {
	o := newOrigin(testFile(1), 2*SegmentSize)
	good := o.content
	bad := slices.Clone(good)
	bad[100] ^= 1
	c := newCache(t, Options{})
	o.set(func() { o.content = bad })
	require.NoError(t, getRange(context.Background(), c, o, 0, SegmentSize).err)
	idle(t, c)
	o.set(func() { o.content = good })
	var during []result
	c.onPurge = func() {
		c.onPurge = nil
		for range 3 {
			during = append(during, get(context.Background(), c, o))
		}
	}
	first := getRange(context.Background(), c, o, SegmentSize, SegmentSize)
	require.True(t, first.err != nil || bytes.Equal(good[SegmentSize:], first.body))
	require.Len(t, during, 3)
	for _, r := range append(during, get(context.Background(), c, o)) {
		require.True(t, r.err != nil || bytes.Equal(good, r.body), "a wrong byte in a whole body")
	}
	requireWhole(t, o, get(context.Background(), c, o))
	require.EqualValues(t, 1, c.Stats().CRCErrors)
}
