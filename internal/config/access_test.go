package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/httpserver/fileselect"

	"github.com/stretchr/testify/require"
)

func TestAccessRules(t *testing.T) {
	t.Setenv("OPENS_EMPTY", "")
	t.Setenv("OPENS_BLANK", "  ")
	requireRules(t, base, []mistake{
		{"PROXY protocol of no proxy", "[gateway]\nclient_address = proxy-protocol\n", Error, 4,
			"without trusted_proxies"},
		{"method without proxies", "[gateway]\nclient_address = x-real-ip\n", Warning, 4, "has no effect"},
		{"all are proxies", "[gateway]\ntrusted_proxies = 10.0.0.1, 0.0.0.0/0\n", Warning, 4, "address of its choice"},
		{"all of IPv6 are", "[gateway]\ntrusted_proxies = ::/0\n", Warning, 4, "address of its choice"},
		{"all are sources", "[gateway]\nallow_sources = ::/0\n", Warning, 4, "any address as its source"},
		{"no clients named", "[access]\nallow =\n", Warning, 4, "allow is empty and keeps no client out"},
		{"empty variable", "[access]\nallow = ${OPENS_EMPTY}\n", Warning, 4, "keeps no client out"},
		{"empty in a section", "[access]\nallow = 10.0.0.1\n[access jpg]\nallow = ${OPENS_EMPTY}\n", Warning, 6,
			"allow is empty, since its variable is"},
		{"blank variable", "[access]\nallow = ${OPENS_BLANK}\n", Warning, 4, "since its variable is"},
		{"empty switch", "[gateway]\nlandlock =\n", Warning, 4, "is empty and counts as false"},
		{"rule in no section", "[gateway]\n[storage]\ndeny = 10.0.0.1\n", Error, 5, "deny belongs in [access]"},
		{"token in no section", "[http]\nhttp.anti_steal.check_token = true\n", Error, 4, "no token is checked"},
		{"rule above all sections", "deny = 10.0.0.1\n", Error, 3, "deny belongs in [access]"},
		{"socket for all", "[gateway]\nadmin_listen = unix:/run/a.sock\nadmin_socket_mode = 0666\n", Warning, 5,
			"lets every account"},
		{"secret of signatures", "http.anti_steal.secret_key = abc\n[image]\nsizes = 200x200\n", Warning, 3,
			"can be found by trying"},
		{"a comment beside check_token", "http.anti_steal.check_token = false\ncheck_token true\n", Warning, 4,
			"without = is ignored"},
		{"rule that keeps nobody out", "allow = all\n", Warning, 3, "allow belongs in [access]"},
		{"burst without rate", "[access]\nrequests_burst = 5\n", Warning, 4, "without requests_per_second"},
		{"send_rate_after alone", "[access]\nsend_rate_after = 1MB\n", Warning, 4, "without send_rate"},
		{"file without referers", "[access]\nreferer_file = x.png\n", Warning, 4, "without referers"},
		{"no network", "[access]\nallow = 10.0.0.0/33\n", Error, 4, "no network"},
		{"network with a zone", "[access]\ndeny = fe80::1%eth0\n", Error, 4, "no network"},
		{"comma too many", "[gateway]\ntrusted_proxies = 10.0.0.1,\n", Error, 4, "no network"},
		{"referer without a host", "[access]\nreferers = none, /x\n", Error, 4, "no host name"},
		{"comma in an expression", "[access]\nreferers = ~(a{1,2})\n", Error, 4, "no regular expression"},
		{"expression without end", "[access]\nreferers = ~(a\n", Error, 4, "no regular expression"},
		{"server_names", "[access]\nreferers = server_names\n", Error, 4, "no host name"},
		{"two stars", "[access]\nreferers = *.example.*\n", Error, 4, "no host name"},
		{"redirect and file", "[access]\nreferers = none\nreferer_file = x.png\nreferer_redirect = /x\n", Error, 6,
			"are both set"},
		{"both in a section", "[access]\nreferers = none\n[access jpg]\nreferer_redirect = /x\nreferer_file = x\n",
			Error, 6, "are both set"},
		{"redirect without referers", "[access jpg]\nreferer_redirect = /x\n", Warning, 4, "without referers"},
		{"redirect to another scheme", "[access]\nreferer_redirect = ftp://a/\n", Error, 4, "no URL"},
		{"redirect to another host", "[access]\nreferer_redirect = //a/\n", Error, 4, "no URL"},
		{"redirect to nowhere", "[access]\nreferer_redirect = x.html\n", Error, 4, "no URL"},
		{"redirect with a blank", "[access]\nreferer_redirect = /a b\n", Error, 4, "cannot have"},
		{"burst of files", "[access jpg]\nrequests_burst = 5\n", Warning, 4, "without requests_per_second"},
		{"key of files", "[access jpg]\nreferrers = none\n", Error, 4, "did you mean referers"},
		{"value of files", "[access group2/]\ndeny = everybody\n", Error, 4, "no network"},
		{"key twice", "[access jpg]\ndeny = 10.0.0.1\n[access jpg]\ndeny =\n", Warning, 6, "written already"},
		{"group in capitals", "[access GROUP1/]\ndeny = ALL\n[group1]\ngroup_name = group1\n", Warning, 3,
			"did you mean group1/"},
		{"group behind a comma", "[access jpg,group9/]\ndeny = ALL\n", Warning, 3, "group9 is no group of this host"},
		{"unknown group", "[headers group9/M00/]\nX-A = b\n", Warning, 3, "group9 is no group of this host"},
		{"selector", "[access *.jpg]\ndeny = 10.0.0.1\n", Error, 3, "neither an extension"},
		{"word", "[acces jpg]\ndeny = 10.0.0.1\n", Error, 3, "did you mean [access ...]"},
		{"line of files", "[access jpg]\ndeny\n", Error, 4, "without ="},
		{"password without =", "[redis]\npassword: s\n", Error, 4, "did you mean password = ...?"},
		{"rate", "[access]\nrequests_per_second = 10r/s\n", Error, 4, "is not a rate"},
		{"negative rate", "[access]\nrequests_per_second = -1\n", Error, 4, "is not a rate"},
		{"no number", "[access]\nrequests_per_second = NaN\n", Error, 4, "is not a rate"},
		{"burst of 0", "[access]\nrequests_burst = 0\n", Error, 4, "not a number in range"},
		{"method", "[gateway]\nclient_address = x-client-ip\n", Error, 4, "write x-forwarded-for, x-real-ip"},
		{"health path", "[gateway]\nhealth_path = health\n", Error, 4, "is not a plain path"},
		{"health path with query", "[gateway]\nhealth_path = /health?x\n", Error, 4, "is not a plain path"},
	})
	for _, text := range []string{
		"[gateway]\ntrusted_proxies = unix:\nclient_address = proxy-protocol\nhealth_path = /\n",
		"[access]\nreferer_file =\nrequests_per_second =\nrequests_burst =\nsend_rate =\n",
		"[access]\nrequests_burst = 5\nreferer_redirect = /no\n[access jpg]\nrequests_per_second = 1\n" +
			"referers = none\n",
		"[access]\nrequests_per_second = 0.25\nrequests_burst = 1\nreferers = none, Blocked, .Example.com, www.*\n",
	} {
		_ = clean(t, base+text)
	}
}

// TestAccessSections: a section inherits the keys of [access] that it does not contain. An empty
// value sets the default.
func TestAccessSections(t *testing.T) {
	c := clean(t, base+"tracker_server = 10.0.0.9:22122\n[access jpg group2/]\nsend_rate = 1KB\n"+
		"[access]\nsend_rate = 2KB\nsend_rate_after = 3\nrequests_per_second = 2\nallow = 10.0.0.0/8\n"+
		"[access mp4]\nsend_rate =\nallow =\n[access jpg group2/]\nrequests_burst = 7\n")
	require.Len(t, c.AccessSections, 3)
	again := c.AccessSections[2]
	require.Equal(t, "access jpg group2/", again.Name)
	require.Equal(t, 7, again.RequestsBurst)
	require.Equal(t, c.Access.SendRate, again.SendRate)
	jpg, mp4 := c.AccessSections[0], c.AccessSections[1]
	require.True(t, jpg.Files.Match("group2", 0, "JPG"))
	require.False(t, jpg.Files.Match("group1", 0, "jpg"))
	want := c.Access
	want.SendRate = 1 << 10
	require.Equal(t, want, jpg.Access)
	require.True(t, jpg.Writes("allow", "send_rate"))
	require.False(t, jpg.Writes("allow", "send_rate_after"))
	want = c.Access
	want.SendRate, want.Allow = 0, Networks{}
	require.Equal(t, want, mp4.Access)
	require.True(t, mp4.Writes("allow"))

	text := strings.Builder{}
	for i := range fileselect.MaxSelectors + 1 {
		fmt.Fprintf(&text, "[access g%d/]\ndeny = 10.0.0.1\n", i)
	}
	_, problems := load(t, base+text.String())
	require.Equal(t, 1, found(problems, Error, 2*fileselect.MaxSelectors+4, "more than"), problems)
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
	text = "group_name=g\nstore_path0=" + store(t) + "\n[access jpg]\nreferers = none\nreferer_file = gone.png\n"
	require.Equal(t, 1, found(checked(t, text), Error, 5, "gone.png"))
	c, _ = load(t, text)
	require.Contains(t, maps.Collect(c.Paths()), "access jpg.referer_file")
}
