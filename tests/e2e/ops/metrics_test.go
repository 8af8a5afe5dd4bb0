package ops

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// metricsList is the file with all series of /metrics except those of Go and of the process, one a
// line: type, name and labels. Dashboards and alerts depend on the list. UPDATE_METRICS=1 rewrites
// the file.
const metricsList = "testdata/metrics.txt"

// withCache matches the series that only a gateway with a cache, or with a certificate or [image],
// exports.
var withCache = regexp.MustCompile(
	`^\w+ fdfs_gateway_(certificate_|cache_|variants_|stale_served_|peer_bytes_|peer_served_)`)

// TestMetricsList: a gateway with all features exports the series of metricsList, and a gateway
// without a cache those that withCache does not match.
func TestMetricsList(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file := s.Normal("txt", []byte("hello"))
	logs := filepath.Join(t.TempDir(), "access.log")
	peers := lab.Address(lab.Port())
	certs := t.TempDir()
	e2e.Certificate(t, certs)
	full := e2e.Serve(t, s, "[gateway]", "access_log = "+logs, "tls_listen = 127.0.0.1:0",
		"tls_cert = "+certs+"/cert.pem", "tls_key = "+certs+"/key.pem", "[cache]", "disk_path = "+t.TempDir(),
		"[image]", "sizes = 200x200", "[redis]", "addresses = "+redistest.Start(t).Addr(),
		"[peer]", "listen = "+peers, "advertise = https://"+peers, "secret = "+lab.Secret)
	plain := e2e.Serve(t, s, "[gateway]", "access_log = "+logs, "[cache]", "memory_max = 0")

	got := askedSeries(full, s, file)
	if os.Getenv("UPDATE_METRICS") != "" {
		require.NoError(t, os.WriteFile(metricsList, []byte(strings.Join(got, "\n")+"\n"), 0o600))
	}
	text, err := os.ReadFile(metricsList)
	require.NoError(t, err)
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Equal(t, want, got, "UPDATE_METRICS=1 writes the list anew")
	require.Equal(t, slices.DeleteFunc(want, withCache.MatchString), askedSeries(plain, s, file))
}

// TestMetricsDocumented: docs/metrics.md has exactly the metrics of metricsList, with their types.
func TestMetricsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(metricsList)
	require.NoError(t, err)
	docs, err := os.ReadFile("../../../docs/metrics.md")
	require.NoError(t, err)
	rows := map[string]string{} // type by name
	tableRow := regexp.MustCompile(`(?m)^\| (.*?) \| (counter|gauge|histogram)`)
	for _, row := range tableRow.FindAllStringSubmatch(string(docs), -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			rows[name[1]] = row[2]
		}
	}
	listed := map[string]string{}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		kind, series, _ := strings.Cut(line, " ")
		name, _, _ := strings.Cut(strings.TrimPrefix(series, "fdfs_gateway_"), "{")
		if kind == "histogram" {
			name = suffix.ReplaceAllString(name, "")
		}
		listed[name] = kind
	}
	require.Equal(t, listed, rows)
}

// askedSeries requests a file that exists and one that does not, and returns the series of /metrics
// after both requests were counted, in the order of the page.
func askedSeries(p *e2e.Process, s *storetest.Store, file storetest.Object) []string {
	p.T.Helper()
	require.Equal(p.T, http.StatusOK, p.Get(file.URL()).StatusCode)
	require.Equal(p.T, http.StatusNotFound, p.Get(s.Missing("txt", e2e.LongAgo).URL()).StatusCode)
	var list []string
	eventually.True(p.T, func() bool { // a request is counted after its last byte
		list = series(p)
		counted := 0
		for _, line := range list {
			if strings.HasPrefix(line, "counter fdfs_gateway_requests_total{") {
				counted++
			}
		}
		return counted == 2
	})
	return list
}

// series returns the type, name and labels of the series of /metrics, except those of Go and of the
// process.
func series(p *e2e.Process) (list []string) {
	p.T.Helper()
	_, page := p.AdminGet("/metrics")
	kind := ""
	for _, line := range strings.Split(page, "\n") {
		if fields := strings.Fields(line); len(fields) == 4 && fields[1] == "TYPE" {
			kind = fields[3]
		}
		if strings.HasPrefix(line, "fdfs_gateway_") {
			list = append(list, kind+" "+line[:strings.LastIndexByte(line, ' ')])
		}
	}
	return list
}

// TestMonitoredMetrics: dashboard and alerts use only metrics that the gateway exports.
func TestMonitoredMetrics(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile(metricsList)
	require.NoError(t, err)
	rules, err := os.ReadFile("../../../docs/alerts.yml")
	require.NoError(t, err)
	dashboard, err := os.ReadFile("../../../docs/grafana.json")
	require.NoError(t, err)
	names := regexp.MustCompile(`fdfs_gateway_\w+`).FindAllString(string(rules)+string(dashboard), -1)
	require.Greater(t, len(names), 40)
	for _, name := range names {
		require.Regexp(t, `(?m) `+name+`(\{|$)`, string(list), "no such metric")
	}
}
