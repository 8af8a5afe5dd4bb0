package main

import (
	"errors"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/tests/docs"
	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
)

func TestDocument(t *testing.T) { require.NoError(t, checkDocument("../../docs/benchmarks.md")) }

// checkDocument finds the marks in the document that make bench writes.
func checkDocument(path string) error {
	document, err := os.ReadFile(path)
	for _, section := range []string{"figures", "link", "crowds"} {
		_, bad := docs.ReplaceSection(document, "make bench", section, "")
		err = errors.Join(err, bad)
	}
	return err
}

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

// measureEnough measures for longer where a machine that stands still has left no time for a
// request, or for a tick of processor time.
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

func TestWrongResponsesAreNoFigures(t *testing.T) {
	w, s := newTestWorld(t)
	o, err := w.store.plain(4 * kib)
	require.NoError(t, err)
	p, err := w.startGateway(s.gateway, local)
	require.NoError(t, err)
	defer p.Stop()
	c := &testCase{status: http.StatusOK}
	c.same(o)
	require.NoError(t, c.prepare(&c.gateway, p.Addr))
	c.want.sum[0] ^= 1
	require.ErrorContains(t, c.prepare(&c.gateway, p.Addr), "that are not the")
	c.status = http.StatusPartialContent
	require.ErrorIs(t, c.prepare(&c.gateway, p.Addr), errWrong)
	for _, bad := range []answers{{}, {requests: 5, others: 1}, {requests: 5, broken: 1}} {
		require.ErrorIs(t, c.judge(&bad), errWrong)
	}
	require.NoError(t, c.judge(&answers{requests: 5}))
}
