package content

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNanoseconds(t *testing.T) {
	for _, seconds := range []int64{0, -1, 1795181354, lastSecond, firstSecond} {
		v := Version{ModTime: Nanoseconds(seconds)}
		require.True(t, time.Unix(seconds, 0).Equal(v.Time()), seconds)
	}
	require.Equal(t, Nanoseconds(lastSecond), Nanoseconds(math.MaxInt64))
	require.Equal(t, Nanoseconds(firstSecond), Nanoseconds(math.MinInt64))
}

func TestSegments(t *testing.T) {
	for size, want := range map[int64][]int64{
		0: {}, 1: {1}, SegmentSize: {SegmentSize}, SegmentSize + 1: {SegmentSize, 1},
	} {
		v := Version{Size: size}
		require.EqualValues(t, len(want), v.Segments())
		for i, length := range want {
			require.Equal(t, length, v.SegmentLength(int64(i)))
		}
		require.Zero(t, v.SegmentLength(int64(len(want))))
		require.Zero(t, v.SegmentLength(-1))
	}
}
