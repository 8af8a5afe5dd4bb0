package main

import (
	"net/http"
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

// smallFile returns the case of a small file, and a gateway that serves the file.
func smallFile(t *testing.T) (*testCase, *process) {
	t.Helper()
	w, s := newTestWorld(t)
	o, err := w.store.plain(4 * kib)
	require.NoError(t, err)
	p, err := w.startGateway(s.gateway, local)
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	c := &testCase{status: http.StatusOK}
	c.same(o)
	return c, p
}

func TestWrongResponsesAreNoFigures(t *testing.T) {
	c, p := smallFile(t)
	require.NoError(t, c.prepare(&c.gateway, p))
	c.want.sum[0] ^= 1
	require.ErrorContains(t, c.prepare(&c.gateway, p), "that are not the")
	c.status = http.StatusPartialContent
	require.ErrorIs(t, c.prepare(&c.gateway, p), errWrong)
	for _, bad := range []responses{{}, {requests: 5, others: 1}, {requests: 5, broken: 1}} {
		require.ErrorIs(t, c.judge(&bad), errWrong)
	}
	require.NoError(t, c.judge(&responses{requests: 5}))
}

// TestH2load: parseH2load reads the report of Debian's h2load, and rejects other text.
func TestH2load(t *testing.T) {
	report := "finished in 2.00s, 21000.00 req/s, 84.00MB/s\n" +
		"requests: 42000 total, 42400 started, 42000 done, 41990 succeeded, 10 failed, 7 errored, 3 timeout\n" +
		"status codes: 41980 2xx, 5 3xx, 4 4xx, 1 5xx\n" +
		"traffic: 165.00MB (173015040) total, 1.00MB (1048576) headers (space savings 90.00%), " +
		"164.00MB (171966464) data\n"
	a, err := parseH2load([]byte(report))
	require.NoError(t, err)
	require.Equal(t, responses{requests: 41990, bytes: 171966464, time: 2 * time.Second, others: 5, broken: 10}, a)
	_, err = parseH2load([]byte("could not connect\n"))
	require.Error(t, err)
}
