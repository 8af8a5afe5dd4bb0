package status

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUnits(t *testing.T) {
	for x, want := range map[float64]string{0: "0", .001: "< 0.01", .5: "0.5", 3.14159: "3.14", 42.25: "42.2",
		99.99:  "100",
		1234.4: "1\u202f234", 1e6: "1\u202f000\u202f000"} {
		require.Equal(t, want, number(x), "%v", x)
	}
	require.Equal(t, "–", number(math.NaN()))
	require.Equal(t, "-1\u202f234", count(-1234))
	for x, want := range map[float64]string{0: "0 B", 1023: "1\u202f023 B", 1024: "1 KB", 1.5 * (1 << 20): "1.5 MB",
		1 << 40: "1 TB"} {
		require.Equal(t, want, size(x), "%v", x)
	}
	for x, want := range map[float64]string{0: "0 %", .0001: "< 0.1 %", .123: "12.3 %", .9999: "> 99.9 %", 1: "100 %",
		-1: "–"} {
		require.Equal(t, want, percent(x), "%v", x)
	}
	for x, want := range map[float64]string{.00025: "250 µs", .012: "12 ms", 1.5: "1.5 s", math.NaN(): "–"} {
		require.Equal(t, want, seconds(x), "%v", x)
	}
	for d, want := range map[time.Duration]string{-1: "0 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min 1 s",
		20 * time.Minute: "20 min", 90 * time.Minute: "1 h 30 min", 26 * time.Hour: "1 d 2 h",
		400 * 24 * time.Hour:    "400 d",
		time.Hour + time.Second: "1 h"} {
		require.Equal(t, want, age(d).String(), "%v", d)
	}
}
