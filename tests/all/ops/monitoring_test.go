package ops

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// dashboard is the part of docs/grafana.json that is checked.
type dashboard struct {
	SchemaVersion int
	Panels        []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr, RefID string }
	}
}

func readDashboard(t *testing.T) (d dashboard, exprs []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/grafana.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	return d, exprs
}

// TestAlerts: promtool accepts the rules and their tests. Each rule has a test in which it fires;
// promtool fails if a rule does not fire.
func TestAlerts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	promtool := func(args ...string) (string, error) {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	var texts []string
	for _, name := range []string{"alerts.yml", "alerts_test.yml"} {
		text, err := os.ReadFile("../../../docs/" + name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
		texts = append(texts, string(text))
	}
	rules := regexp.MustCompile(`- alert: (\w+)\n`).FindAllStringSubmatch(texts[0], -1)
	require.NotEmpty(t, rules)
	for _, rule := range rules {
		require.Regexp(t, `alertname: `+rule[1]+`\n\s+exp_alerts:\n\s+- exp_labels`, texts[1])
	}
	out, err := promtool("check", "rules", "alerts.yml")
	require.NoError(t, err, out)
	out, err = promtool("test", "rules", "alerts_test.yml")
	require.NoError(t, err, out)
	broken := strings.Replace(texts[0], rules[0][0], "- alert: Another\n", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), []byte(broken), 0o600))
	_, err = promtool("test", "rules", "alerts_test.yml")
	require.Error(t, err)
}

// TestPrometheusQueries: a real Prometheus reads a gateway's metrics and evaluates every query of
// the dashboard and every rule.
func TestPrometheusQueries(t *testing.T) {
	t.Parallel()
	p := e2e.Serve(t, storetest.New(t))
	dir, address := t.TempDir(), lab.Address(lab.Port())
	rules, err := filepath.Abs("../../../docs/alerts.yml")
	require.NoError(t, err)
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - {job_name: fastdfs-gateway, static_configs: [{targets: [%q]}]}
`, rules, p.AdminAddr), 0o600))
	cmd := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+dir+"/data",
		"--web.listen-address="+address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error reports the kill
	})
	get := func(path string) (status int, body string) {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	query := func(expr string) (int, string) { return get("/api/v1/query?query=" + neturl.QueryEscape(expr)) }
	eventually.True(t, func() bool {
		_, body := query(`fdfs_gateway_connections{job="fastdfs-gateway"}`)
		return strings.Contains(body, p.AdminAddr)
	}, "metrics are read")
	variables := strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m")
	_, exprs := readDashboard(t)
	for _, expr := range exprs {
		status, body := query(variables.Replace(expr))
		require.Equal(t, 200, status, "%s: %s", expr, body)
	}
	eventually.True(t, func() bool {
		_, body := get("/api/v1/rules")
		return strings.Contains(body, `"health":"ok"`) && !strings.Contains(body, `"health":"unknown"`)
	}, "rules are evaluated")
	_, body := get("/api/v1/rules")
	require.NotContains(t, body, `"health":"err"`)
}
