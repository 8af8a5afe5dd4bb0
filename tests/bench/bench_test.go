package main

import (
	"errors"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/docs"
	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
)

func TestParseFigures(t *testing.T) {
	got,
		err := parseFigures([]byte("Running 1s test\n  1 threads\n\nfigures 1000 4300000 1002003 7 2 450 3000 12000\n"))
	require.NoError(t, err)
	require.Equal(t, answers{requests: 1000, bytes: 4300000, time: 1002003 * time.Microsecond, others: 7, broken: 2,
		p50: 450 * time.Microsecond, p99: 3 * time.Millisecond, p999: 12 * time.Millisecond}, got)
	for _, bad := range []string{"", "figures", "figures 1 2 3", "figures 1 2 3 4 5 6 7 8 9", "figures 1 2 3 4 5 6 7 x",
		"unable to connect"} {
		_, err := parseFigures([]byte(bad))
		require.Error(t, err, bad)
	}
}

func FuzzParseFigures(f *testing.F) {
	f.Add([]byte("figures 1 2 3 4 5 6 7 8"))
	f.Add([]byte("\nfigures 9223372036854775808 2 3 4 5 6 7 8\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		if _, err := parseFigures(out); err == nil {
			require.Contains(t, string(out), "figures ")
		}
	})
}

func TestRatioComparesRunsThatWereBesideEachOther(t *testing.T) {
	cpu := func(list ...time.Duration) (s samples) {
		for _, d := range list {
			s = append(s, sample{cpu: d})
		}
		return s
	}
	// The machine was slow in the second.
	r := &result{c: &testCase{name: "x"}, a: cpu(10, 100, 30), b: cpu(10, 200, 20)}
	require.Equal(t, ratio{middle: 1, least: .5, most: 1.5}, r.ratioOf(cpuOf))
	require.Equal(t, 30.0, r.a.of(cpuOf))
	require.Equal(t, 2.5, median([]float64{4, 1, 2, 3}))
}

func TestTableTellsWhereTheOtherSideIsAhead(t *testing.T) {
	sides := [2]side{{name: "gateway"}, {name: "nginx"}}
	slow := sample{cpu: 30 * time.Microsecond, rate: 100, p50: 1, p99: 1, p999: 2, rss: 1}
	fast := sample{cpu: 10 * time.Microsecond, rate: 200, p50: 1, p99: 1, p999: 1, rss: 1}
	text := table(sides, []*result{{c: &testCase{name: "lost", note: "as it is"}, a: samples{slow}, b: samples{fast}},
		{c: &testCase{name: "won"}, a: samples{fast}, b: samples{slow}}})
	require.Contains(t, text, "| lost | 30.0 us | 10.0 us | **3.00** (3.00-3.00) | 100 | 200 | 0.50 (0.50-0.50) |")
	require.Contains(t, text,
		"- lost: 3.00 of its processor time (3.00-3.00)\n- lost: 0.50 of its requests per second (0.50-0.50)\n- "+
			"lost: 2.00 of its p99.9")
	require.Contains(t, text, "- lost: as it is.\n")
	require.NotContains(t, text, "- won")
	require.Contains(t, table(sides, []*result{{c: &testCase{name: "won"}, a: samples{fast}, b: samples{slow}}}),
		"ahead nowhere")
}

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

func TestUsageCountsProcessorTime(t *testing.T) {
	before, err := usageOf(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, before.rss)
	require.Positive(t, before.threads)
	n := 0
	eventually.True(t, func() bool {
		for i := range 10_000_000 {
			n += i
		}
		now, err := usageOf(os.Getpid())
		return err == nil && now.cpu >= before.cpu+5*tick
	})
	_, err = usageOf(1 << 30)
	require.Error(t, err)
}

func TestMixIsAsSkewedAsZipfSays(t *testing.T) {
	counts := map[int]int{}
	for _, i := range popular(mixFiles, mixAsked) {
		require.Less(t, i, mixFiles)
		counts[i]++
	}
	require.Greater(t, counts[0], mixAsked/20, "one file in many requests")
	require.Greater(t, len(counts), mixFiles/3, "and a long tail")
	require.Equal(t, popular(mixFiles, 100), popular(mixFiles, 100), "the same in every run")
	for i := range mixFiles {
		require.Positive(t, mixSize(i))
		require.LessOrEqual(t, mixSize(i), 120*kib)
	}
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

func TestWrongAnswersAreNoFigures(t *testing.T) {
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
