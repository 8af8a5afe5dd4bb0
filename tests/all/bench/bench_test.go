package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
)

// needPrograms skips a test where wrk or nginx is missing.
func needPrograms(t *testing.T) {
	t.Helper()
	for _, name := range []string{"wrk", "nginx"} {
		if _, err := lab.LookUp(name); err != nil {
			t.Skip(err)
		}
	}
}

func TestCasesEndToEnd(t *testing.T) {
	needPrograms(t)
	w, s := newTestWorld(t)
	s.time, s.pattern = time.Second, regexp.MustCompile("^4 KiB trunk slot$|304|token")
	cases, err := w.cases(s.pattern.MatchString, 1)
	require.NoError(t, err)
	require.Len(t, cases, 3)
	sides, err := w.sides(s)
	require.NoError(t, err)
	for i := range cases {
		r := w.measureEnough(t, &cases[i], sides, *s)
		require.Positive(t, r.a[0].rate, cases[i].name)
		require.Positive(t, r.b[0].cpu, cases[i].name)
	}
}

// measureEnough measures again, for a longer time, if a stalled machine has left no time for a
// request or for a tick of processor time.
func (w *world) measureEnough(t *testing.T, c *testCase, sides [2]side, s settings) *result {
	t.Helper()
	for ; ; s.time *= 4 {
		r, err := w.measure(c, sides, &s)
		nothing := err == nil && r.b[0].cpu == 0 || err != nil && strings.Contains(err.Error(), "of 0 requests")
		if !nothing || s.time > time.Minute {
			require.NoError(t, err, c.name)
			return r
		}
	}
}
