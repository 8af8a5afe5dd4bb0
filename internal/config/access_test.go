package config

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAccessRules(t *testing.T) {
	for _, c := range []struct {
		name, text string
		severity   Severity
		line       int
		want       string
	}{
		{"PROXY protocol of no proxy", "[gateway]\nclient_address = proxy-protocol\n", Error, 4, "names no proxy"},
		{"method without proxies", "[gateway]\nclient_address = x-real-ip\n", Warning, 4, "has no effect"},
		{"all are proxies", "[gateway]\ntrusted_proxies = 10.0.0.1, 0.0.0.0/0\n", Warning, 4, "address of its choice"},
		{"all of IPv6 are", "[gateway]\ntrusted_proxies = ::/0\n", Warning, 4, "address of its choice"},
		{"burst without rate", "[access]\nrequests_burst = 5\n", Warning, 4, "without requests_per_second"},
		{"send_rate_after alone", "[access]\nsend_rate_after = 1MB\n", Warning, 4, "without send_rate"},
		{"file without referers", "[access]\nreferer_file = x.png\n", Warning, 4, "without referers"},
		{"no network", "[access]\nallow = 10.0.0.0/33\n", Error, 4, "no network"},
		{"all is no network", "[access]\ndeny = all\n", Error, 4, "no network"},
		{"network with a zone", "[access]\ndeny = fe80::1%eth0\n", Error, 4, "no network"},
		{"comma too many", "[gateway]\ntrusted_proxies = 10.0.0.1,\n", Error, 4, "no network"},
		{"referer with a path", "[access]\nreferers = none, example.com/x\n", Error, 4, "no host name"},
		{"referer by expression", "[access]\nreferers = ~example\n", Error, 4, "no host name"},
		{"server_names", "[access]\nreferers = server_names\n", Error, 4, "no host name"},
		{"two stars", "[access]\nreferers = *.example.*\n", Error, 4, "no host name"},
		{"rate", "[access]\nrequests_per_second = 10r/s\n", Error, 4, "is not a rate"},
		{"negative rate", "[access]\nrequests_per_second = -1\n", Error, 4, "is not a rate"},
		{"no number", "[access]\nrequests_per_second = NaN\n", Error, 4, "is not a rate"},
		{"burst of 0", "[access]\nrequests_burst = 0\n", Error, 4, "not a number in range"},
		{"method", "[gateway]\nclient_address = x-client-ip\n", Error, 4, "write x-forwarded-for, x-real-ip"},
		{"health path", "[gateway]\nhealth_path = health\n", Error, 4, "is not a plain path"},
		{"health path with query", "[gateway]\nhealth_path = /health?x\n", Error, 4, "is not a plain path"},
	} {
		config, problems := load(t, base+c.text)
		require.Equal(t, 1, found(problems, c.severity, c.line, c.want, "; "), "%s: %v", c.name, problems)
		require.Equal(t, c.severity == Error, config == nil, c.name)
	}
	for _, text := range []string{
		"[gateway]\ntrusted_proxies = unix:\nclient_address = proxy-protocol\nhealth_path = /\n",
		"[access]\nallow =\ndeny =\nreferers =\nreferer_file =\nrequests_per_second =\nrequests_burst =\nsend_rate =\n",
		"[access]\nrequests_per_second = 0.25\nrequests_burst = 1\nreferers = none, Blocked, .Example.com, www.*\n",
	} {
		_ = clean(t, base+text)
	}
}

func TestCheckRefererFile(t *testing.T) {
	text := "group_name=g\nstore_path0=" + store(t) + "\n[access]\nreferers = none\nreferer_file = no.png\n"
	problems := checked(t, text)
	require.Len(t, problems, 1)
	require.Equal(t, 1, found(problems, Error, 5, "no.png"), problems)

	c, _ := load(t, text)
	require.Equal(t, filepath.Base(c.Access.RefererFile), "no.png")
	require.Contains(t, maps.Collect(c.Paths()), "access.referer_file")
	require.NoError(t, os.WriteFile(c.Access.RefererFile, []byte("x"), 0o600))
	c, _ = load(t, "group_name=g\nstore_path0=/a\n[access]\nreferer_file = no.png\n")
	require.NotContains(t, maps.Collect(c.Paths()), "access.referer_file")
}
