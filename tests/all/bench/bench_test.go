package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/tests/docs"
	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
)

// TestDocument: the document has the marks of all sections that make bench writes.
func TestDocument(t *testing.T) {
	document, err := os.ReadFile("../../../docs/benchmarks.md")
	require.NoError(t, err)
	for _, section := range []string{"figures", "module"} {
		_, err := docs.ReplaceSection(document, "make bench", section, "")
		require.NoError(t, err)
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

// TestModule: an nginx with the module is measured for files of its own store. The nginx of the
// test is a script that checks the folder of the configuration and serves the files without the
// module.
func TestModule(t *testing.T) {
	needPrograms(t)
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	w, s := newTestWorld(t)
	s.module = filepath.Join(t.TempDir(), "nginx")
	require.NoError(t, os.WriteFile(s.module, []byte("#!/bin/sh\nset -e\n"+
		"root=$(sed -n s/^store_path0=//p "+moduleFolder+"/mod_fastdfs.conf)\n"+
		"grep -q secret_key "+moduleFolder+"/http.conf\n"+
		"location='rewrite ^/group1/M00/(.*)$ /$1 break; root '$root'/data;'\n"+
		"sed -i \"s#ngx_fastdfs_module;#$location#\" \"$4\"\n"+
		"exec nginx \"$@\"\n"), 0o700))
	s.time, s.pattern = time.Second, regexp.MustCompile("^4 KiB file$|cold")
	sides, err := w.sides(s)
	require.NoError(t, err)
	cases, err := w.cases(s.pattern.MatchString, 1)
	require.NoError(t, err)
	r := w.measureEnough(t, &cases[0], sides, *s)
	require.Positive(t, r.b[0].rate)
	require.Contains(t, r.row(), "4 KiB file")
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

// TestTable: the table begins with the case in which the first side is furthest behind, and names
// the cases that share a note once.
func TestTable(t *testing.T) {
	row := func(name, note string, a, b time.Duration) *result {
		c := &testCase{name: name, note: note}
		return &result{c: c, a: samples{{cpu: a, rate: 1}}, b: samples{{cpu: b, rate: 1}}}
	}
	text := table([2]side{{name: "gateway"}, {name: "nginx"}}, []*result{row("even", "", 10, 10),
		row("slot", "a plain file", 8, 10), row("behind", "", 12, 10), row("other slot", "a plain file", 7, 10)})
	require.Regexp(t,
		`(?s)\| behind \|.*\*\*1\.20\*\* \(1\.20-1\.20\).*\| even \|.*\| slot \|.*\| other slot \|`, text)
	require.Contains(t, text, "\n- slot, other slot: a plain file.\n")
	require.Equal(t, "- a b\n  "+strings.Repeat("c", 99), wrapped("- a b "+strings.Repeat("c", 99)))
}
